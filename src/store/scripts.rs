//! Every script: its source, its checked-in pin, and what it can answer. `lua/<system>/<verb>.lua` is paired with
//! `sha1/<system>/<verb>.lua.sha1`; both are compiled in, so a build carries what was reviewed.

use std::fmt;
use std::sync::OnceLock;

use sha1::{Digest, Sha1};

use crate::error::{Error, Result};

/// One pinned script.
pub struct Script {
    name: &'static str,
    source: &'static str,
    pin_file: &'static str,
    answers: &'static [&'static str],
    computed: OnceLock<String>,
}

impl Script {
    const fn new(
        name: &'static str,
        source: &'static str,
        pin_file: &'static str,
        answers: &'static [&'static str],
    ) -> Self {
        Self { name, source, pin_file, answers, computed: OnceLock::new() }
    }

    /// `<system>/<verb>`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The Lua source, as compiled in.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// The words an answer can begin with.
    pub fn answers(&self) -> &'static [&'static str] {
        self.answers
    }

    /// The SHA-1 in the pin file: its first 40 characters, as `sha1sum` writes them.
    pub fn pinned(&self) -> &'static str {
        self.pin_file.get(..40).unwrap_or(self.pin_file)
    }

    /// The SHA-1 of the source, computed once.
    pub fn computed(&self) -> &str {
        self.computed.get_or_init(|| hex::encode(Sha1::digest(self.source.as_bytes())))
    }

    /// Compares source and pin. Errors with [`Error::PinMismatch`], which names the script and both hashes.
    pub fn verify(&self) -> Result<()> {
        if self.computed() == self.pinned() {
            return Ok(());
        }
        Err(Error::PinMismatch {
            script: self.name,
            pinned: self.pinned().to_owned(),
            found_by: "computed",
            found: self.computed().to_owned(),
        })
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Script({} {})", self.name, self.pinned())
    }
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $path:literal answers $answers:expr;)+) => {
        $(
            $(#[$doc])*
            pub static $name: Script = Script::new(
                $path,
                include_str!(concat!("../../lua/", $path, ".lua")),
                include_str!(concat!("../../sha1/", $path, ".lua.sha1")),
                &$answers,
            );
        )+

        /// Every script of this build.
        pub fn all() -> &'static [&'static Script] {
            static ALL: &[&Script] = &[$(&$name),+];
            ALL
        }
    };
}

scripts! {
    /// Gives a process the row and the epoch of a node id.
    NODE_JOIN = "node/join" answers ["JOINED", "EPOCH", "DUPLICATE", "SKEW", "NEED"];
    /// Renews a lease.
    NODE_BEAT = "node/beat" answers ["BEAT", "GONE", "FENCED", "SKEW"];
    /// Takes a node away at once.
    NODE_LEAVE = "node/leave" answers ["LEFT", "FENCED"];
    /// Takes long silent nodes off a roster.
    NODE_REMOVE = "node/remove" answers ["REMOVED"];
    /// Drops the last epoch of ids unseen for a day.
    NODE_FORGET = "node/forget" answers ["FORGOTTEN", "NEED"];
    /// Replaces a control entry.
    CONTROL_PUT = "control/put" answers ["PUT", "CHANGED", "VERSION"];
    /// Adds a proxy's picks to the recent picks of all.
    SELECT_BUMP = "select/bump" answers ["BUMPED"];
    /// Writes a PENDING token.
    TOKEN_ISSUE = "token/issue" answers [
        "ISSUED", "TAKEN", "ENDED", "ATTEMPT", "CANCELLED", "LATE", "NO_PLACE", "KILLED", "CONTROL", "NO_LEASE", "FENCED",
        "SKEW", "NEED"
    ];
    /// PENDING to CLAIMED.
    TOKEN_CLAIM = "token/claim" answers [
        "CLAIMED", "LOST", "EXPIRED", "ENDED", "NONE", "SERVER_GONE", "KILLED", "CONTROL", "NO_LEASE", "FENCED", "NEED"
    ];
    /// CLAIMED to CONSUMED.
    TOKEN_CONSUME = "token/consume" answers [
        "CONSUMED", "REPLAY", "NOT_CLAIMED", "EXPIRED", "ENDED", "NOT_YOURS", "NONE", "NO_LEASE", "FENCED"
    ];
    /// Ends a token that nobody will use.
    TOKEN_RELEASE = "token/release" answers ["RELEASED", "LOST", "LANDED", "ENDED", "NONE", "NEED"];
    /// Marks a request as cancelled and ends its live token.
    TOKEN_CANCEL = "token/cancel" answers ["CANCELLED", "RELEASED", "LOST", "LANDED", "NEED"];
    /// Expires, reopens and heals tokens that are due.
    TOKEN_REAP = "token/reap" answers ["REAPED"];
    /// Gives a player a place in a line, or admits at once.
    QUEUE_ENTER = "queue/enter" answers [
        "ADMITTED", "PASS", "WAITING", "FULL", "LANE", "CONTROL", "NO_LEASE", "FENCED", "SKEW", "NEED"
    ];
    /// Takes a player out of a line, at once or with the place kept.
    QUEUE_LEAVE = "queue/leave" answers ["LEFT", "AWAY", "OTHER", "NONE", "NEED"];
    /// Reads who is admitted next.
    QUEUE_PEEK = "queue/peek" answers ["PEEK"];
    /// Admits the heads of a line.
    QUEUE_ADMIT = "queue/admit" answers ["ROUND", "CONTROL", "KILLED", "NO_LEASE", "FENCED", "SKEW"];
    /// Puts a player whose transfer failed back to the front.
    QUEUE_FAILED = "queue/failed" answers [
        "BACK", "AWAY", "OUT", "LATE", "LANDED", "LANE", "NEED", "NO_LEASE", "FENCED", "SKEW"
    ];
    /// Notes that an admitted player is on the server.
    QUEUE_ARRIVED = "queue/arrived" answers ["ARRIVED", "LATE", "NEED"];
    /// Spends a login pass.
    QUEUE_REDEEM = "queue/redeem" answers [
        "REDEEMED", "SPENT", "PLACE_GONE", "VOID", "EXPIRED", "NOT_YOURS", "NO_LEASE", "FENCED"
    ];
    /// Looks after the places of a line.
    QUEUE_SWEEP = "queue/sweep" answers ["SWEPT"];
    /// Stops or resumes the admission of a line.
    QUEUE_PAUSE = "queue/pause" answers ["PAUSED", "RESUMED"];
    /// Reads where a player stands, or how a line stands.
    QUEUE_POSITION = "queue/position" answers ["WAITING", "AWAY", "NONE", "LINE"];
    /// Turns a ticket of a wait line into a token.
    QUEUE_DRAIN = "queue/drain" answers [
        "DRAINED", "GONE", "AWAY", "EVICTED", "TAKEN", "NO_PLACE", "CANCELLED", "ENDED", "KILLED", "CONTROL", "NO_LEASE", "FENCED",
        "SKEW", "NEED"
    ];
    /// Charges an operation of a player against a limit.
    LIMIT_TAKE = "limit/take" answers ["ALLOWED", "DENIED"];
    /// Takes a charge back.
    LIMIT_REFUND = "limit/refund" answers ["REFUNDED", "NONE"];
    /// Makes a node the owner of an object.
    ROUTE_ACQUIRE = "route/acquire" answers ["ACQUIRED", "OWNED", "VERSION", "NO_LEASE", "FENCED", "NEED"];
    /// Sets the saved time of an owned object.
    ROUTE_RENEW = "route/renew" answers ["RENEWED", "LOST", "NO_LEASE", "FENCED"];
    /// Writes an owned object's bytes.
    ROUTE_SAVE = "route/save" answers ["SAVED", "LOST", "CAS", "NO_LEASE", "FENCED"];
    /// Gives an owned object up.
    ROUTE_RELEASE = "route/release" answers ["RELEASED", "LOST", "VERSION"];
    /// Makes another node the owner of an owned object.
    ROUTE_TRANSFER = "route/transfer" answers ["MOVED", "LOST", "TARGET_GONE", "VERSION"];
    /// Frees the routes of an owner long gone, heals its index.
    ROUTE_SWEEP = "route/sweep" answers ["SWEPT"];
    /// Signs a record or an object's bytes again after a change of the secret.
    ROUTE_SIGN = "route/sign" answers ["SIGNED", "CHANGED"];
}

/// Compares every script with its pin; the first mismatch is the error.
pub fn verify_all() -> Result<()> {
    all().iter().try_for_each(|script| script.verify())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sto_2_every_script_matches_its_pin_and_a_changed_byte_is_named() {
        verify_all().expect("the build's scripts match their pins");
        static CHANGED: Script =
            Script::new("token/claim", "return 1", "da39a3ee5e6b4b0d3255bfef95601890afd80709  x", &[]);
        let error = CHANGED.verify().expect_err("changed").to_string();
        assert!(
            error.contains("token/claim") && error.contains("da39a3ee") && error.contains(CHANGED.computed()),
            "{error}"
        );
    }
}
