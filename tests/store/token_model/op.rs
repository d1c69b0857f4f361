//! What can happen.

use proptest::prelude::*;

/// One thing that happens. Nodes, players, requests and tokens are indices; a token counts back from the newest.
#[derive(Debug, Clone)]
pub enum Op {
    /// A backend promises a place. `heard`: it learns how that ended.
    Issue {
        server: usize,
        player: usize,
        request: usize,
        attempt: u32,
        heard: bool,
    },
    /// A proxy claims; `again` under the operation that it used for this token before.
    Claim {
        proxy: usize,
        token: usize,
        again: bool,
    },
    /// A router that is no member claims.
    ClaimAsRouter {
        token: usize,
    },
    /// A player arrives at a backend, which looks into its ledger. `heard`: it learns how the consume ended.
    Arrive {
        server: usize,
        player: usize,
        heard: bool,
    },
    /// The player of a token arrives where it is good for.
    ArriveWith {
        token: usize,
        heard: bool,
    },
    /// A backend consumes past its ledger what it does not hold.
    ConsumeForeign {
        server: usize,
        token: usize,
    },
    /// A backend asks again for what it did not hear.
    Settle {
        server: usize,
    },
    /// A backend looks at the rows of what it holds and at the clock.
    Look {
        server: usize,
    },
    ReleaseClaim {
        proxy: usize,
        token: usize,
    },
    ReleaseOwn {
        server: usize,
        token: usize,
    },
    ReleaseByOperator {
        token: usize,
    },
    Cancel {
        proxy: usize,
        player: usize,
        request: usize,
    },
    Reap {
        dry: bool,
    },
    /// Time passes; whoever lives beats.
    Wait {
        units: u64,
    },
    /// The beats of a node stop. It goes on acting: a paused process does not know.
    Die {
        node: usize,
    },
    /// The beats of the proxy that holds a token stop, time passes, and somebody sweeps.
    Abandon {
        token: usize,
        units: u64,
    },
    /// A node beats again: the same process, or a new one under its id.
    Revive {
        node: usize,
        fresh: bool,
    },
    /// A backend comes back with a new epoch: the same process with its places, or an empty one.
    Restart {
        server: usize,
        keep: bool,
    },
}

pub const PROXIES: usize = 3;
pub const SERVERS: usize = 2;
pub const PLAYERS: usize = 2;
const REQUESTS: usize = 3;
const TOKENS_BACK: usize = 5;
const LONGEST: usize = 40;

fn op() -> impl Strategy<Value = Op> {
    let (proxy, server, player) = (0..PROXIES, 0..SERVERS, 0..PLAYERS);
    let (request, token, node) = (0..REQUESTS, 0..TOKENS_BACK, 0..PROXIES + SERVERS);
    let recent = prop_oneof![3 => Just(0_usize), 1 => token.clone()];
    let mostly = prop_oneof![4 => Just(true), 1 => Just(false)];
    prop_oneof![
        8 => (server.clone(), player.clone(), request.clone(), 1..5_u32, mostly.clone()).prop_map(
            |(server, player, request, attempt, heard)| Op::Issue { server, player, request, attempt, heard }
        ),
        8 => (proxy.clone(), recent.clone(), any::<bool>())
            .prop_map(|(proxy, token, again)| Op::Claim { proxy, token, again }),
        2 => recent.clone().prop_map(|token| Op::ClaimAsRouter { token }),
        2 => (server.clone(), player.clone(), mostly.clone()).prop_map(
            |(server, player, heard)| Op::Arrive { server, player, heard }
        ),
        4 => (recent.clone(), mostly).prop_map(|(token, heard)| Op::ArriveWith { token, heard }),
        2 => (server.clone(), recent.clone()).prop_map(|(server, token)| Op::ConsumeForeign { server, token }),
        2 => server.clone().prop_map(|server| Op::Settle { server }),
        2 => server.clone().prop_map(|server| Op::Look { server }),
        1 => (proxy.clone(), recent.clone()).prop_map(|(proxy, token)| Op::ReleaseClaim { proxy, token }),
        1 => (server.clone(), recent.clone()).prop_map(|(server, token)| Op::ReleaseOwn { server, token }),
        1 => recent.clone().prop_map(|token| Op::ReleaseByOperator { token }),
        1 => (proxy, player, request).prop_map(|(proxy, player, request)| Op::Cancel { proxy, player, request }),
        5 => any::<bool>().prop_map(|dry| Op::Reap { dry }),
        4 => (1..6_u64).prop_map(|units| Op::Wait { units }),
        3 => (recent, 2..5_u64).prop_map(|(token, units)| Op::Abandon { token, units }),
        1 => node.clone().prop_map(|node| Op::Die { node }),
        2 => (node, any::<bool>()).prop_map(|(node, fresh)| Op::Revive { node, fresh }),
        1 => (server, any::<bool>()).prop_map(|(server, keep)| Op::Restart { server, keep }),
    ]
}

/// Lists of what happens, one after the other.
pub fn lists() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..LONGEST)
}
