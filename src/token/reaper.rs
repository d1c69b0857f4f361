use serde::Serialize;

use crate::error::{Error, Result, StoreRefusal};
use crate::ids::{NodeId, Player};
use crate::store::{Answer, Invocation, Key, Store, scripts};

use super::book::Book;

/// Most tokens of one server that one sweep looks at.
const SERVER_MAX: usize = 100_000;
/// Calls in one pipeline.
const CALLS: usize = 16;

/// How a sweep is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReapOptions {
    /// Decide and count, change nothing.
    pub dry_run: bool,
    /// Until when, in store ms, a claimant may be taken for dead. After that tokens only end by their time, also in a call that
    /// reached the store late. Default: for ever.
    pub judge_until_ms: u64,
    /// Tokens in one call, 1 to 256. Default 64.
    pub batch: usize,
    /// Tokens in one sweep.
    pub limit: usize,
}

impl Default for ReapOptions {
    fn default() -> Self {
        Self { dry_run: false, judge_until_ms: u64::MAX, batch: 64, limit: SERVER_MAX }
    }
}

/// What one sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ReapReport {
    /// Tokens whose time was over.
    pub expired: u64,
    /// Claims of the dead that are PENDING again.
    pub reopened: u64,
    /// Tokens that are looked at again later.
    pub kept: u64,
    /// Index entries without a token.
    pub healed: u64,
    /// Tokens that another sweep had taken, or that changed since they were read.
    pub skipped: u64,
    /// Servers with due tokens.
    pub servers: u64,
}

impl ReapReport {
    /// Adds another sweep's counts.
    pub fn add(&mut self, other: &Self) {
        self.expired += other.expired;
        self.reopened += other.reopened;
        self.kept += other.kept;
        self.healed += other.healed;
        self.skipped += other.skipped;
        self.servers += other.servers;
    }

    fn count(&mut self, answer: &Answer) {
        for word in answer.values() {
            match word.as_str() {
                "EXPIRED" => self.expired += 1,
                "REOPENED" => self.reopened += 1,
                "KEPT" => self.kept += 1,
                "HEALED" => self.healed += 1,
                _ => self.skipped += 1,
            }
        }
    }
}

/// One sweep over every server's due tokens: expiry, reopening, healing of the index. Any number may run at once; each
/// token has one winner. `own`: a server that is looked at whether it is on the list of those that have some or not. Runs
/// `token/reap`, in pipelines. A batch that is refused holds no other up; its error comes at the end.
pub async fn reap(book: &Book, own: Option<&NodeId>, options: ReapOptions) -> Result<ReapReport> {
    let listed = book.servers().await?;
    let unlisted = own.filter(|own| !listed.contains(own));
    sweep(book, &listed, unlisted, options).await
}

/// [`reap`] over the due tokens of `servers` only, whether they are on the list of those that have some or not.
pub async fn reap_servers(book: &Book, servers: &[NodeId], options: ReapOptions) -> Result<ReapReport> {
    sweep(book, servers, None, options).await
}

async fn sweep(book: &Book, listed: &[NodeId], unlisted: Option<&NodeId>, options: ReapOptions) -> Result<ReapReport> {
    let store = book.store();
    let mut report = ReapReport::default();
    let servers: Vec<&NodeId> = listed.iter().chain(unlisted).collect();
    let due_keys: Vec<Key<'_>> = servers.iter().map(|server| store.keys().due(server)).collect();
    let (now, lasts_ms) = (store.clock().now_ms(), book.options().ttl_ms);
    let due = store.overdue(&due_keys, now, lasts_ms, options.limit.min(SERVER_MAX)).await?;
    let mut left = options.limit;
    let mut refused = None;
    for (server, members) in servers.into_iter().zip(due) {
        let members: Vec<Member> = members.into_iter().take(left).map(Member::new).collect();
        if members.is_empty() && unlisted == Some(server) {
            continue;
        }
        left -= members.len();
        report.servers += u64::from(!members.is_empty());
        // An empty set still costs one call: the server may have to go off the list of those that have one.
        let batches: Vec<&[Member]> =
            if members.is_empty() { vec![&[]] } else { members.chunks(options.batch.clamp(1, 256)).collect() };
        let mut calls = Vec::with_capacity(batches.len());
        for batch in &batches {
            let claimants = claimants(store, batch).await?;
            calls.push(call(book, server, batch, &claimants, options));
        }
        for (group, batches) in calls.chunks(CALLS).zip(batches.chunks(CALLS)) {
            for (answer, batch) in store.run_many(group).await?.into_iter().zip(batches) {
                match answer {
                    Ok(answer) => report.count(&answer),
                    Err(Error::Refused { refusal: StoreRefusal::WrongType, .. }) => {
                        one_by_one(book, server, batch, options, &mut report).await?;
                    }
                    Err(error) => refused = Some(error),
                }
            }
        }
    }
    metrics::counter!("maitred_reaped_total", "what" => "expired").increment(report.expired);
    metrics::counter!("maitred_reaped_total", "what" => "reopened").increment(report.reopened);
    refused.map_or(Ok(report), Err)
}

/// An entry of a `due:` set.
#[derive(Debug)]
struct Member {
    bytes: Vec<u8>,
    /// None where no player can be called so: somebody wrote it by hand, and it is taken out.
    player: Option<Player>,
}

impl Member {
    fn new(bytes: Vec<u8>) -> Self {
        let player = std::str::from_utf8(&bytes).ok().and_then(|name| Player::new(name).ok());
        Self { bytes, player }
    }
}

/// A key of another type ends a whole call of the script. Here it ends only its own, and stays where it is.
async fn one_by_one(
    book: &Book,
    server: &NodeId,
    members: &[Member],
    options: ReapOptions,
    report: &mut ReapReport,
) -> Result<()> {
    for member in members.chunks(1) {
        let claimants = claimants(book.store(), member).await?;
        match book.store().run(&call(book, server, member, &claimants, options)).await {
            Ok(answer) => report.count(&answer),
            Err(error @ Error::Refused { refusal: StoreRefusal::WrongType, .. }) => {
                tracing::warn!(%server, ?member, %error, "left out of the sweep");
                report.skipped += 1;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn claimants(store: &Store, members: &[Member]) -> Result<Vec<Option<NodeId>>> {
    let players: Vec<&Player> = members.iter().filter_map(|member| member.player.as_ref()).collect();
    let keys: Vec<Key<'_>> = players.iter().map(|player| store.keys().token(player)).collect();
    let mut rows = store.fields(&keys, &["claimant"]).await?.into_iter();
    let claimant = |member: &Member| -> Option<NodeId> {
        member.player.as_ref()?;
        NodeId::new(rows.next()?.get("claimant")?).ok()
    };
    Ok(members.iter().map(claimant).collect())
}

fn call(
    book: &Book,
    server: &NodeId,
    members: &[Member],
    claimants: &[Option<NodeId>],
    options: ReapOptions,
) -> Invocation {
    let keys = book.store().keys();
    let due = keys.due(server);
    let mut key_list = vec![due, keys.due_servers()];
    for (member, claimant) in members.iter().zip(claimants) {
        key_list.push(member.player.as_ref().map_or(due, |player| keys.token(player)));
        key_list.push(claimant.as_ref().map_or(due, |claimant| keys.node(claimant)));
    }
    let mut call = Invocation::new(&scripts::TOKEN_REAP, &key_list)
        .arg(server)
        .arg(book.options().claim_reanimate_ms)
        .arg(book.options().audit_ms)
        .arg(keys.token_events())
        .arg(options.dry_run)
        .arg(options.judge_until_ms);
    for (member, claimant) in members.iter().zip(claimants) {
        call = call.arg(&member.bytes).arg(claimant.as_ref());
    }
    call
}
