//! `maitred tokens`: the open ones ([`open`]), everything about one player's ([`player`]), and an operator's release
//! ([`release`]).

mod open;
mod player;
mod release;

use clap::{Args, Subcommand};
use serde::Serialize;

use maitred::error::Error;
use maitred::ids::{Epoch, NodeId, OperationId, Player};
use maitred::store::Store;
use maitred::token::Claim;

use super::Failure;
use super::context::Context;
use super::view;

const JSON_HELP: &str = "\
Times are the store's ms since 1970; what ends in _ms is a span. Only rows that verify are shown; the others are counted \
as not believed.

With --json one object. Open tokens: zone, as_of, total, tokens (player, state, overdue, server, server_epoch, claim, age_ms, \
expires_in_ms, id, request, attempt), unindexed (index entries without an open token), not_believed (count, reasons, rows). \
One player: player, as_of, token (null, or as above with payload, issued_at, expires_at, last_claim, reason, consumed_at), \
previous (ended tokens before it: id, end, operation, request, attempt), cancelled (request, at).";

/// Options of this command.
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true, after_help = JSON_HELP)]
pub(super) struct Options {
    #[command(subcommand)]
    action: Option<Action>,
    /// Show everything about this player's token, an ended one too
    player: Option<Player>,
    /// Only tokens of this backend
    #[arg(long, value_name = "ID")]
    server: Option<NodeId>,
    /// Most tokens shown, those that expire first [default: 50]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Tokens shown unless another number is given.
const LIMIT: usize = 50;

#[derive(Debug, Subcommand)]
enum Action {
    /// Release a player's open token as an operator; its place goes back
    #[command(after_help = release::HELP)]
    Release {
        /// Whose token
        player: Player,
        /// Why: a word that stays in the row while it is readable
        #[arg(long, value_name = "WORD", default_value = "operator", value_parser = release::reason)]
        reason: String,
    },
}

pub(super) async fn run(context: &Context, options: Options) -> Result<(), Failure> {
    let narrowed = options.server.is_some() || options.limit.is_some();
    // The parser's own rule for this would also refuse a --json in front of the subcommand.
    match (options.action, options.player) {
        (Some(_), Some(_)) => Err(Failure::Usage("give a player or a subcommand, not both".to_owned())),
        (Some(_), _) | (_, Some(_)) if narrowed => {
            Err(Failure::Usage("--server and --limit are for the list of open tokens".to_owned()))
        }
        (Some(Action::Release { player, reason }), None) => release::run(context, &player, &reason).await,
        (None, Some(player)) => player::run(context, &player).await,
        (None, None) => open::run(context, options.server, options.limit.unwrap_or(LIMIT)).await,
    }
}

/// A claim as JSON has it.
#[derive(Debug, Serialize)]
struct ShownClaim {
    claimant: NodeId,
    /// 0 for a router that is no member.
    claimant_epoch: Epoch,
    claimed_at: u64,
    operation: OperationId,
}

impl From<Claim> for ShownClaim {
    fn from(claim: Claim) -> Self {
        Self {
            claimant: claim.claimant,
            claimant_epoch: claim.claimant_epoch,
            claimed_at: claim.claimed_at_ms,
            operation: claim.claim_op,
        }
    }
}

/// What is left until `at_ms`, negative when it is over.
fn left_ms(at_ms: u64, now_ms: u64) -> i64 {
    let span = i64::try_from(at_ms.abs_diff(now_ms)).unwrap_or(i64::MAX);
    if at_ms >= now_ms { span } else { -span }
}

/// `in 3.2 s`, or `3.2 s ago`.
fn when(left_ms: i64) -> String {
    let span = view::ago(left_ms.unsigned_abs());
    if left_ms >= 0 { format!("in {span}") } else { format!("{span} ago") }
}

/// A row that is not believed stops its player from getting a token; only the store's owner can take it away.
fn with_advice(error: Error, store: &Store, player: &Player) -> Failure {
    match error {
        Error::Untrusted { .. } => Failure::Io(format!(
            "{error}; no member wrote it, so nothing acts on it: look at {key} in the store and DEL it by hand",
            key = store.keys().token(player)
        )),
        other => Failure::Error(other),
    }
}
