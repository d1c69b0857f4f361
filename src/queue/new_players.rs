//! How many new players one node sends to each server in a second. Pure: times come in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ids::NodeId;

/// How far above the limit a node sends players to one server. The gate as a whole runs at the limit times the servers, and
/// chance gives one of them more for a moment.
const SENT_SLACK: f64 = 1.25;
/// How far above the limit a server may report new players before it is passed over: above what is sent.
const REPORTED_SLACK: f64 = 1.5;
/// What may be sent at once after a quiet time, in seconds' worth: more than the gate lets through at once by default.
const AT_ONCE_S: f64 = 0.5;
/// After so long without a new player a server may take as many as one that never had any, in ms.
const FORGET_MS: u64 = 10_000;
/// Servers that are remembered before the forgotten ones are looked for.
const REMEMBERED: usize = 64;

/// True where a server reports more new players a second than it may have, beyond what the gate's own rate and chance bring.
pub(super) fn is_too_fast(reported: f64, limit: u32) -> bool {
    let limit = f64::from(limit);
    reported > (limit * REPORTED_SLACK).max(limit + 1.0)
}

/// The players that one node has sent to servers a moment ago. Cheap to clone; clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct NewPlayers {
    servers: Arc<Mutex<HashMap<NodeId, Sent>>>,
}

/// One server: a bucket that fills with time.
#[derive(Debug, Clone, Copy)]
struct Sent {
    left: f64,
    at_ms: u64,
}

impl NewPlayers {
    fn servers(&self) -> MutexGuard<'_, HashMap<NodeId, Sent>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many players may be sent to a server at `now_ms` that takes `limit` a second.
    pub fn left(&self, server: &NodeId, limit: u32, now_ms: u64) -> u64 {
        let sent = self.servers().get(server).copied();
        whole(left(sent, limit, now_ms))
    }

    /// So many were sent.
    pub fn sent(&self, server: &NodeId, count: u32, limit: u32, now_ms: u64) {
        let mut servers = self.servers();
        if servers.len() > REMEMBERED {
            servers.retain(|_, sent| now_ms.saturating_sub(sent.at_ms) < FORGET_MS);
        }
        let before = left(servers.get(server).copied(), limit, now_ms);
        servers.insert(server.clone(), Sent { left: before - f64::from(count), at_ms: now_ms });
    }
}

fn left(sent: Option<Sent>, limit: u32, now_ms: u64) -> f64 {
    let limit = f64::from(limit);
    let most = (limit * AT_ONCE_S).max(1.0);
    sent.map_or(most, |sent| {
        let age_ms = u32::try_from(now_ms.saturating_sub(sent.at_ms)).unwrap_or(u32::MAX);
        (sent.left + f64::from(age_ms) / 1_000.0 * limit * SENT_SLACK).min(most)
    })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates; no NaN")]
fn whole(number: f64) -> u64 {
    number.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    // a server that takes exactly what the gate gives it must not be held back for it, and one that takes all of the
    // gate must be.
    #[test]
    fn r_51_a_server_gets_its_own_share_of_the_gate_without_a_break_and_no_more_than_a_little_above() {
        let b1 = NodeId::new("b1").expect("valid");
        for (limit, offered, least, most) in
            [(100, 100, 1_000, 1_000), (5, 15, 50, 66), (1, 1, 10, 10), (100, 400, 1_000, 1_310)]
        {
            let (sent, mut taken) = (NewPlayers::default(), 0);
            // Ten seconds in steps of 10 ms.
            let mut owed = 0.0;
            for step in 0..1_000_u64 {
                let now_ms = 1_000_000 + step * 10;
                owed += f64::from(offered) / 100.0;
                while owed >= 0.999 && sent.left(&b1, limit, now_ms) > 0 {
                    sent.sent(&b1, 1, limit, now_ms);
                    owed -= 1.0;
                    taken += 1;
                }
            }
            assert!((least - 1..=most).contains(&taken), "{taken} of {offered} a second in 10 s, the limit is {limit}");
        }
    }

    // the gate's rate and the limit are one number, and what is reported wavers around it.
    #[test]
    fn r_51_what_the_gates_own_rate_brings_is_not_too_fast() {
        for reported in [99.0, 101.0, 125.0, 150.0] {
            assert!(!is_too_fast(reported, 100), "{reported}");
        }
        assert!(is_too_fast(151.0, 100) && is_too_fast(8.0, 5) && is_too_fast(3.0, 1));
        assert!(!is_too_fast(2.0, 1) && !is_too_fast(7.0, 5));
    }
}
