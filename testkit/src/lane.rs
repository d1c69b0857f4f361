//! What one connection still owes its client, so that every reply can be told by the command that asked for it.

use std::collections::VecDeque;

use crate::resp::{Kind, Reply};

/// What a frame from the server settles.
#[derive(Debug, PartialEq, Eq)]
pub enum Settled {
    /// Nobody asked for it: a published message or another push.
    Push,
    /// It answers the command with these labels. `push` is set for the confirmation of a subscription in RESP3.
    Answer {
        /// The labels of the command, see [`labels`].
        labels: Vec<String>,
        /// The answer came as a push frame.
        push: bool,
    },
}

#[derive(Debug)]
struct Owed {
    labels: Vec<String>,
    /// Confirmations still to come, one a channel; 0 for a command with an ordinary reply.
    confirmations: usize,
}

/// The commands of one connection that are not answered yet, oldest first.
#[derive(Debug, Default)]
pub struct Lane {
    owed: VecDeque<Owed>,
    resp2_subscriber: bool,
}

impl Lane {
    /// Notes a command that goes to the server.
    pub fn sent(&mut self, labels: Vec<String>, args: usize) {
        let subscription = labels.first().is_some_and(|name| confirms(&name.to_ascii_lowercase()));
        let confirmations = if subscription { args.saturating_sub(1).max(1) } else { 0 };
        self.owed.push_back(Owed { labels, confirmations });
    }

    /// Tells what a frame answers. A reply that nobody asked for (a greeting of a full server) counts as a push.
    pub fn settle(&mut self, reply: &Reply) -> Settled {
        let push = reply.kind == Kind::Push;
        let word = reply.word.as_deref().unwrap_or_default();
        if (push || reply.kind == Kind::Array) && confirms(word) {
            if let Some(front) = self.owed.front_mut().filter(|front| front.confirmations > 0) {
                front.confirmations -= 1;
                let labels = front.labels.clone();
                if front.confirmations == 0 {
                    self.owed.pop_front();
                }
                self.resp2_subscriber |= !push;
                return Settled::Answer { labels, push };
            }
            // UNSUBSCRIBE without channels confirms as many as there were.
            if self.resp2_subscriber {
                return Settled::Push;
            }
        }
        let message = self.resp2_subscriber && matches!(word, "message" | "pmessage" | "smessage");
        if push || message {
            return Settled::Push;
        }
        match self.owed.pop_front() {
            Some(owed) => Settled::Answer { labels: owed.labels, push: false },
            None => Settled::Push,
        }
    }
}

fn confirms(word: &str) -> bool {
    matches!(word, "subscribe" | "unsubscribe" | "psubscribe" | "punsubscribe" | "ssubscribe" | "sunsubscribe")
}

/// The names that a command is counted under: its own in upper case, and with what tells it from its like:
/// `EVALSHA <sha>`, `PUBLISH <channel>`.
pub fn labels(args: &[Vec<u8>]) -> Vec<String> {
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    let Some(name) = args.first().map(|name| text(name).to_ascii_uppercase()) else {
        return Vec::new();
    };
    let detail = match name.as_str() {
        "EVALSHA" | "EVALSHA_RO" => args.get(1).map(|sha| text(sha).to_ascii_lowercase()),
        "PUBLISH" | "SPUBLISH" => args.get(1).map(text),
        _ => None,
    };
    let detailed = detail.map(|detail| format!("{name} {detail}"));
    std::iter::once(name).chain(detailed).collect()
}
