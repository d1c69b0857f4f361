//! The naive book: what the requirements say, in the plainest words, with one clock and nothing that can be lost.

use std::collections::{BTreeMap, BTreeSet};

use maitred::token::BookOptions;

/// A node's row: there until its lease is over.
#[derive(Debug, Clone, Copy)]
struct Node {
    epoch: u64,
    beat_at: u64,
}

/// Who holds or held a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    pub by: String,
    pub epoch: u64,
    pub op: String,
    pub at: u64,
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub id: String,
    pub server: String,
    pub epoch: u64,
    pub request: String,
    pub attempt: u32,
    pub expires_at: u64,
    pub state: &'static str,
    pub claim: Option<Hold>,
    pub last_claim: Option<Hold>,
    consume_op: Option<String>,
    cancelled: bool,
}

impl Entry {
    pub fn is_open(&self) -> bool {
        matches!(self.state, "PENDING" | "CLAIMED")
    }
}

#[derive(Debug, Clone)]
struct Past {
    id: String,
    end: &'static str,
    consume_op: Option<String>,
    request: String,
    attempt: u32,
    /// A cancel ended it; one more of the same request answers the same.
    cancelled: bool,
}

/// A player's page.
#[derive(Debug, Default)]
struct Page {
    entry: Option<Entry>,
    /// The newest first, four at most.
    past: Vec<Past>,
    /// Cancelled requests, the newest first, four at most.
    marks: Vec<(String, u64)>,
    gone_at: u64,
}

/// Somebody under an id and an epoch.
pub type Who<'a> = (&'a str, u64);

/// What a sweep has to do with a player's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    Nothing,
    Expire,
    Reopen,
    /// Its claimant is gone, but the look at the end of its old lease has not come yet: either is right.
    MayReopen,
}

#[derive(Debug)]
pub struct Oracle {
    pub now: u64,
    times: BookOptions,
    lease_ms: u64,
    nodes: BTreeMap<String, Node>,
    /// The last beat of every incarnation.
    beats: BTreeMap<(String, u64), u64>,
    pages: BTreeMap<String, Page>,
    /// The tokens that somebody must look at: server and player.
    pub index: BTreeSet<(String, String)>,
}

const NONE: &str = "None";

fn ended(end: &str) -> String {
    format!("Ended({end})")
}

impl Oracle {
    pub fn new(times: BookOptions, lease_ms: u64) -> Self {
        Self {
            now: 0,
            times,
            lease_ms,
            nodes: BTreeMap::new(),
            beats: BTreeMap::new(),
            pages: BTreeMap::new(),
            index: BTreeSet::new(),
        }
    }

    pub fn beat(&mut self, id: &str, epoch: u64) {
        self.nodes.insert(id.to_owned(), Node { epoch, beat_at: self.now });
        self.beats.insert((id.to_owned(), epoch), self.now);
    }

    fn lease(&self, (id, epoch): Who<'_>) -> Result<(), String> {
        match self.nodes.get(id) {
            Some(node) if self.now >= node.beat_at + self.lease_ms => Err("LeaseLost".to_owned()),
            Some(node) if node.epoch != epoch => Err("Fenced".to_owned()),
            Some(_) => Ok(()),
            None => Err("LeaseLost".to_owned()),
        }
    }

    /// What is readable of a player.
    fn page(&mut self, player: &str) -> &mut Page {
        let page = self.pages.entry(player.to_owned()).or_default();
        if self.now >= page.gone_at {
            *page = Page::default();
        }
        page
    }

    pub fn entry(&mut self, player: &str) -> Option<Entry> {
        self.page(player).entry.clone()
    }

    /// Whether the store would still let a player in with that token. TOK-7
    pub fn can_be_consumed(&mut self, player: &str, id: &str) -> bool {
        let now = self.now;
        let Some(entry) = self.entry(player) else { return false };
        let current = self.nodes.get(&entry.server).is_none_or(|node| node.epoch == entry.epoch);
        entry.id == id && entry.is_open() && now < entry.expires_at && current
    }

    fn end(&mut self, player: &str, state: &'static str) {
        let gone_at = self.now + self.times.audit_ms;
        let page = self.page(player);
        page.gone_at = gone_at;
        if let Some(entry) = &mut page.entry {
            entry.state = state;
            let place = (entry.server.clone(), player.to_owned());
            self.index.remove(&place);
        }
    }

    pub fn issue(&mut self, id: &str, player: &str, who: Who<'_>, request: &str, attempt: u32) -> String {
        let (now, expires_at) = (self.now, self.now + self.times.ttl_ms);
        let lease = self.lease(who);
        let page = self.page(player);
        if let Some(entry) = page.entry.as_ref().filter(|entry| entry.id == id) {
            return match entry.is_open() {
                true if now < entry.expires_at => "Issued".to_owned(),
                true => ended("EXPIRED"),
                false => ended(entry.state),
            };
        }
        if let Some(past) = page.past.iter().find(|past| past.id == id) {
            return ended(past.end);
        }
        if let Err(refused) = lease {
            return refused;
        }
        if page.marks.iter().any(|(mark, _)| mark == request) {
            return "Cancelled".to_owned();
        }
        let seen = page.past.iter().filter(|past| past.request == request).map(|past| past.attempt).max();
        let mut seen = seen.unwrap_or(0);
        let old = self.entry(player);
        let end = match &old {
            Some(entry) if !entry.is_open() => Some(entry.state),
            Some(entry) if now >= entry.expires_at => Some("EXPIRED"),
            Some(entry) if self.lease((&entry.server, entry.epoch)).is_err() => Some("SERVER_GONE"),
            Some(entry) if entry.state == "PENDING" && entry.request == request && attempt > entry.attempt => {
                Some("SUPERSEDED")
            }
            Some(_) => return "Taken".to_owned(),
            None => None,
        };
        if let Some(entry) = old.as_ref().filter(|entry| entry.request == request) {
            seen = seen.max(entry.attempt);
        }
        if attempt <= seen {
            return "Attempt".to_owned();
        }
        if let (Some(old), Some(end)) = (old, end) {
            if old.is_open() {
                self.index.remove(&(old.server.clone(), player.to_owned()));
            }
            let Entry { id, consume_op, request, attempt, cancelled, .. } = old;
            let page = self.page(player);
            page.past.insert(0, Past { id, end, consume_op, request, attempt, cancelled });
            page.past.truncate(4);
        }
        self.index.insert((who.0.to_owned(), player.to_owned()));
        let gone_at = expires_at + self.times.audit_ms;
        let page = self.page(player);
        page.gone_at = gone_at;
        page.entry = Some(Entry {
            id: id.to_owned(),
            server: who.0.to_owned(),
            epoch: who.1,
            request: request.to_owned(),
            attempt,
            expires_at,
            state: "PENDING",
            claim: None,
            last_claim: None,
            consume_op: None,
            cancelled: false,
        });
        "Issued".to_owned()
    }

    pub fn claim(&mut self, id: &str, player: &str, who: Who<'_>, op: &str) -> String {
        let now = self.now;
        let entry = self.entry(player).filter(|entry| entry.id == id);
        if let Some(Entry { state: "CLAIMED", claim: Some(claim), expires_at, .. }) = &entry
            && claim.op == op
            && now < *expires_at
        {
            return "Claimed".to_owned();
        }
        if who.1 != 0
            && let Err(refused) = self.lease(who)
        {
            return refused;
        }
        let Some(entry) = entry else {
            return self.page(player).past.iter().find(|past| past.id == id).map_or(NONE.to_owned(), |p| ended(p.end));
        };
        if !entry.is_open() {
            return ended(entry.state);
        }
        if now >= entry.expires_at {
            return "Expired".to_owned();
        }
        if entry.state == "CLAIMED" || entry.last_claim.is_some_and(|last| last.op == op) {
            return "Lost".to_owned();
        }
        if self.lease((&entry.server, entry.epoch)).is_err() {
            return "ServerGone".to_owned();
        }
        if let Some(entry) = &mut self.page(player).entry {
            entry.state = "CLAIMED";
            entry.claim = Some(Hold { by: who.0.to_owned(), epoch: who.1, op: op.to_owned(), at: now });
        }
        "Claimed".to_owned()
    }

    pub fn consume(&mut self, id: &str, player: &str, who: Who<'_>, op: &str) -> String {
        let entry = self.entry(player).filter(|entry| entry.id == id);
        let over = match &entry {
            Some(entry) if entry.is_open() => None,
            Some(entry) => Some((entry.state, entry.consume_op.clone())),
            None => {
                let page = self.page(player);
                page.past.iter().find(|past| past.id == id).map(|past| (past.end, past.consume_op.clone()))
            }
        };
        if over.as_ref().is_some_and(|(end, by)| *end == "CONSUMED" && by.as_deref() == Some(op)) {
            return "Consumed".to_owned();
        }
        if let Err(refused) = self.lease(who) {
            return refused;
        }
        match (over, entry) {
            (Some(("CONSUMED", _)), _) => "Replay".to_owned(),
            (Some((end, _)), _) => ended(end),
            (None, None) => NONE.to_owned(),
            (None, Some(entry)) if (entry.server.as_str(), entry.epoch) != who => "NotYours".to_owned(),
            (None, Some(entry)) if self.now >= entry.expires_at => "Expired".to_owned(),
            (None, Some(entry)) if entry.claim.is_none() && entry.last_claim.is_none() => "NotClaimed".to_owned(),
            (None, Some(_)) => {
                self.end(player, "CONSUMED");
                if let Some(entry) = &mut self.page(player).entry {
                    entry.consume_op = Some(op.to_owned());
                }
                "Consumed".to_owned()
            }
        }
    }

    /// `may`: whether whoever asks may release this entry.
    pub fn release(&mut self, id: &str, player: &str, may: impl Fn(&Entry) -> bool) -> String {
        let now = self.now;
        let Some(entry) = self.entry(player).filter(|entry| entry.id == id) else {
            return match self.page(player).past.iter().find(|past| past.id == id).map(|past| past.end) {
                Some("CONSUMED") => "Landed".to_owned(),
                Some("RELEASED") => "Released".to_owned(),
                Some(end) => ended(end),
                None => NONE.to_owned(),
            };
        };
        match entry.state {
            "CONSUMED" => "Landed".to_owned(),
            "RELEASED" => "Released".to_owned(),
            "EXPIRED" => ended("EXPIRED"),
            _ if !may(&entry) => "Lost".to_owned(),
            _ if now >= entry.expires_at => {
                self.end(player, "EXPIRED");
                ended("EXPIRED")
            }
            _ => {
                self.end(player, "RELEASED");
                "Released".to_owned()
            }
        }
    }

    pub fn cancel(&mut self, player: &str, request: &str, who: Who<'_>) -> String {
        let (now, audit_ms) = (self.now, self.times.audit_ms);
        let page = self.page(player);
        page.marks.retain(|(mark, at)| mark != request && now - at < audit_ms);
        page.marks.insert(0, (request.to_owned(), now));
        page.marks.truncate(4);
        page.gone_at = page.gone_at.max(now + audit_ms);
        let landed = page.past.iter().any(|past| past.request == request && past.end == "CONSUMED");
        let ended = page.past.iter().any(|past| past.request == request && past.cancelled);
        let Some(entry) = self.entry(player).filter(|entry| entry.request == request) else {
            return match (landed, ended) {
                (true, _) => "Landed",
                (false, true) => "Released",
                (false, false) => "Marked",
            }
            .to_owned();
        };
        let theirs = entry.claim.as_ref().is_some_and(|claim| (claim.by.as_str(), claim.epoch) != who);
        match entry.state {
            "CONSUMED" => "Landed",
            "RELEASED" if entry.cancelled => "Released",
            "PENDING" | "CLAIMED" if now < entry.expires_at => {
                if theirs {
                    return "Lost".to_owned();
                }
                self.end(player, "RELEASED");
                if let Some(entry) = &mut self.page(player).entry {
                    entry.cancelled = true;
                }
                "Released"
            }
            _ => "Marked",
        }
        .to_owned()
    }

    /// What a sweep has to do now with the token of a player.
    pub fn due(&mut self, player: &str) -> Due {
        let now = self.now;
        let Some(entry) = self.entry(player).filter(Entry::is_open) else { return Due::Nothing };
        if now >= entry.expires_at {
            return Due::Expire;
        }
        let Some(claim) = entry.claim else { return Due::Nothing };
        let alive = claim.epoch != 0 && self.lease((&claim.by, claim.epoch)).is_ok();
        if alive || now < claim.at + self.times.claim_reanimate_ms {
            return Due::Nothing;
        }
        let last_beat = self.beats.get(&(claim.by, claim.epoch));
        if last_beat.is_some_and(|beat| now < beat + self.lease_ms) { Due::MayReopen } else { Due::Reopen }
    }

    pub fn expire(&mut self, player: &str) {
        self.end(player, "EXPIRED");
    }

    pub fn reopen(&mut self, player: &str) {
        if let Some(entry) = &mut self.page(player).entry {
            entry.state = "PENDING";
            entry.last_claim = entry.claim.take();
        }
    }

    /// A sweep takes entries of the index away that stand for no open token of that server.
    pub fn heal(&mut self) {
        for (server, player) in self.index.clone() {
            let stands = self.entry(&player).is_some_and(|entry| entry.is_open() && entry.server == server);
            if !stands {
                self.index.remove(&(server, player));
            }
        }
    }
}
