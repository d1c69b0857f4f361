//! Every key of the file in one table: path, type, bounds, and where the value goes. The walk, the checks, the messages
//! and [`Config::keys`](super::Config::keys) all read it, so they cannot disagree.

use super::entry_servers;
use super::fits::{LABEL_MAX_BYTES, LABELS_MAX, is_addr};
use super::model::Config;
use super::problem::Problem;
use super::routes::{FREE_MIN_MS, LOCK_TIMEOUT_MIN_MS, TIME_MAX_MS};
use super::selector::{BACKENDS_ALLOWED, METRICS_ALLOWED};
use super::selector_config::OnNoCandidate;
use super::url::SecretUrl;
use super::yaml::Node;
use super::{limits, lines, peers};
use crate::ids::{NAME_MAX_BYTES, NodeId, Role, Zone};

/// Longest text for a player, in bytes.
const TEXT_MAX_BYTES: usize = 512;
/// One key.
pub(super) struct Key {
    /// Path from the top, joined by dots.
    pub path: &'static str,
    /// Type, bounds and place of the value.
    pub kind: ValueKind,
    /// How it relates to other keys, in words; empty where it does not. `check` holds the rule itself.
    pub relation: &'static str,
}

/// The type of a key's value, its bounds, and the field that takes it.
pub(super) enum ValueKind {
    Flag(fn(&mut Config) -> &mut bool),
    Millis {
        min: u64,
        max: u64,
        at: fn(&mut Config) -> &mut u64,
    },
    Seconds {
        min: u64,
        max: u64,
        at: fn(&mut Config) -> &mut u64,
    },
    Count {
        min: u64,
        max: u64,
        unit: &'static str,
        at: fn(&mut Config) -> &mut usize,
    },
    Text {
        allowed: &'static str,
        fits: fn(&str) -> bool,
        at: fn(&mut Config) -> &mut String,
    },
    /// A text that becomes a type of its own; `set` answers false where it does not fit.
    Typed {
        allowed: &'static str,
        set: fn(&mut Config, &str) -> bool,
    },
    Labels,
    /// A mapping of the operator's own names, which a file of its own reads and checks.
    Table {
        allowed: &'static str,
        read: fn(&mut Config, &Node) -> Vec<Problem>,
        check: fn(&Config) -> Vec<(String, String)>,
    },
    /// The entry servers of fresh logins.
    Servers,
    /// `selector.metrics`: see `selector`.
    Metrics,
    /// `selector.backends`: see `selector`.
    Backends,
}

impl Key {
    /// Type and bounds in words, with the relation to other keys.
    pub(super) fn allowed(&self) -> String {
        let own = match &self.kind {
            ValueKind::Flag(_) => "true or false".to_owned(),
            ValueKind::Millis { min, max, .. } => format!("a whole number of milliseconds from {min} to {max}"),
            ValueKind::Seconds { min, max, .. } => format!("a whole number of seconds from {min} to {max}"),
            ValueKind::Servers => entry_servers::SERVERS_ALLOWED.to_owned(),
            ValueKind::Count { min, max, unit, .. } => format!("a whole number of {unit} from {min} to {max}"),
            ValueKind::Text { allowed, .. } | ValueKind::Typed { allowed, .. } => format!("text: {allowed}"),
            ValueKind::Table { allowed, .. } => (*allowed).to_owned(),
            ValueKind::Labels => format!(
                "a mapping of at most {LABELS_MAX} names (1 to {NAME_MAX_BYTES} characters of A-Z a-z 0-9 . _ -) to \
                 texts of at most {LABEL_MAX_BYTES} bytes without control characters"
            ),
            ValueKind::Metrics => METRICS_ALLOWED.to_owned(),
            ValueKind::Backends => BACKENDS_ALLOWED.to_owned(),
        };
        if self.relation.is_empty() { own } else { format!("{own}, {}", self.relation) }
    }
}

const fn key(path: &'static str, kind: ValueKind) -> Key {
    Key { path, kind, relation: "" }
}

const fn related(path: &'static str, relation: &'static str, kind: ValueKind) -> Key {
    Key { path, kind, relation }
}

const fn millis(min: u64, max: u64, at: fn(&mut Config) -> &mut u64) -> ValueKind {
    ValueKind::Millis { min, max, at }
}

const fn count(min: u64, max: u64, unit: &'static str, at: fn(&mut Config) -> &mut usize) -> ValueKind {
    ValueKind::Count { min, max, unit, at }
}

const fn variable(at: fn(&mut Config) -> &mut String) -> ValueKind {
    ValueKind::Text {
        allowed: "the name of an environment variable (not its value), 1 to 64 characters of A-Z 0-9 _, no digit first",
        fits: is_variable,
        at,
    }
}

const fn player_text(at: fn(&mut Config) -> &mut String) -> ValueKind {
    ValueKind::Text { allowed: "at most 512 bytes", fits: |text| text.len() <= TEXT_MAX_BYTES, at }
}

/// All keys, in the order of the default file.
pub(super) static KEYS: &[Key] = &[
    key("enabled", ValueKind::Flag(|c| &mut c.enabled)),
    key("zone", ValueKind::Typed { allowed: "1 to 64 characters of A-Z a-z 0-9 . _ -", set: set_zone }),
    key(
        "node.id",
        ValueKind::Typed {
            allowed: "1 to 59 characters of A-Z a-z 0-9 . _ -, or \"\" where MAITRED_NODE_ID gives it",
            set: set_node_id,
        },
    ),
    key("node.role", ValueKind::Typed { allowed: "1 to 64 characters of A-Z a-z 0-9 . _ -", set: set_role }),
    key(
        "node.addr",
        ValueKind::Text {
            allowed: "host:port of 1 to 255 bytes, port from 1 to 65535, no blanks, an IPv6 host in brackets",
            fits: is_addr,
            at: |c| &mut c.node.addr,
        },
    ),
    key("node.labels", ValueKind::Labels),
    key("store.url", ValueKind::Typed { allowed: STORE_URL_ALLOWED, set: set_store_url }),
    key("store.commandTimeoutMs", millis(50, 10_000, |c| &mut c.store.command_timeout_ms)),
    key("store.connectTimeoutMs", millis(50, 10_000, |c| &mut c.store.connect_timeout_ms)),
    key("store.operationTimeoutMs", millis(100, 60_000, |c| &mut c.store.operation_timeout_ms)),
    key("security.secretEnv", variable(|c| &mut c.security.secret_env)),
    key("security.secretAlsoEnv", variable(|c| &mut c.security.secret_also_env)),
    key("heartbeat.intervalMs", millis(50, 60_000, |c| &mut c.heartbeat.interval_ms)),
    key("directory.refreshMs", millis(100, 600_000, |c| &mut c.directory.refresh_ms)),
    related(
        "directory.suspectMs",
        "more than two beats (2 × heartbeat.intervalMs) and less than directory.offlineMs",
        millis(101, 86_400_000, |c| &mut c.directory.suspect_ms),
    ),
    related(
        "directory.offlineMs",
        "more than directory.suspectMs and less than directory.removedMs",
        millis(102, 86_400_000, |c| &mut c.directory.offline_ms),
    ),
    related(
        "directory.removedMs",
        "more than directory.offlineMs",
        millis(103, 86_400_000, |c| &mut c.directory.removed_ms),
    ),
    key("tokens.ttlMs", millis(200, 600_000, |c| &mut c.tokens.ttl_ms)),
    related(
        "tokens.claimReanimateMs",
        "not more than tokens.ttlMs",
        millis(100, 600_000, |c| &mut c.tokens.claim_reanimate_ms),
    ),
    key("tokens.auditMs", millis(100, 3_600_000, |c| &mut c.tokens.audit_ms)),
    key("tokens.reapIntervalMs", millis(50, 60_000, |c| &mut c.tokens.reap_interval_ms)),
    key("tokens.reapBatch", count(1, 256, "tokens", |c| &mut c.tokens.reap_batch)),
    key("dispatch.maxRetries", count(0, 16, "tries", |c| &mut c.dispatch.max_retries)),
    key("dispatch.attemptTimeoutMs", millis(50, 60_000, |c| &mut c.dispatch.attempt_timeout_ms)),
    key("dispatch.cooldownMs", millis(0, 600_000, |c| &mut c.dispatch.cooldown_ms)),
    key("dispatch.staleAfterMs", millis(100, 600_000, |c| &mut c.dispatch.stale_after_ms)),
    key("initialRouting.servers", ValueKind::Servers),
    key(
        "initialRouting.timeoutSeconds",
        ValueKind::Seconds { min: 1, max: 120, at: |c| &mut c.initial_routing.timeout_seconds },
    ),
    key("routing.lobbyMode", ValueKind::Flag(|c| &mut c.routing.lobby_mode)),
    key("selector.onNoCandidate", ValueKind::Typed { allowed: "refuse or queue", set: set_on_no_candidate }),
    key("selector.recentPicks.halflifeMs", millis(100, 600_000, |c| &mut c.selector.recent_picks.halflife_ms)),
    key("selector.recentPicks.shared", ValueKind::Flag(|c| &mut c.selector.recent_picks.shared)),
    key("selector.metrics", ValueKind::Metrics),
    key("selector.backends", ValueKind::Backends),
    key("wait.maxWaiting", count(1, 1_000_000, "players", |c| &mut c.wait.max_waiting)),
    key("wait.reconnectGraceMs", millis(0, 3_600_000, |c| &mut c.wait.reconnect_grace_ms)),
    key("wait.maxWaitMs", millis(0, 86_400_000, |c| &mut c.wait.max_wait_ms)),
    key("messages.maxBodyBytes", count(64, 1_048_576, "bytes", |c| &mut c.messages.max_body_bytes)),
    key("messages.maxConcurrent", count(1, 65_536, "handlers", |c| &mut c.messages.max_concurrent)),
    key("messages.callTimeoutMs", millis(10, 29_000, |c| &mut c.messages.call_timeout_ms)),
    key("routes.lockTimeoutMs", millis(LOCK_TIMEOUT_MIN_MS, TIME_MAX_MS, |c| &mut c.routes.lock_timeout_ms)),
    key("routes.freeMs", millis(FREE_MIN_MS, TIME_MAX_MS, |c| &mut c.routes.free_ms)),
    key("routes.cacheUpdateMs", millis(1_000, TIME_MAX_MS, |c| &mut c.routes.cache_update_ms)),
    key("routes.cacheFreeMs", millis(1_000, TIME_MAX_MS, |c| &mut c.routes.cache_free_ms)),
    key("routes.saveMs", millis(100, TIME_MAX_MS, |c| &mut c.routes.save_ms)),
    key("routes.downgradeMs", millis(1_000, TIME_MAX_MS, |c| &mut c.routes.downgrade_ms)),
    key("triggers.command", ValueKind::Flag(|c| &mut c.triggers.command)),
    key("triggers.join", ValueKind::Flag(|c| &mut c.triggers.join)),
    key("triggers.firstJoin", ValueKind::Flag(|c| &mut c.triggers.first_join)),
    key("triggers.event", ValueKind::Flag(|c| &mut c.triggers.event)),
    key("triggers.other", ValueKind::Flag(|c| &mut c.triggers.other)),
    key("limits", ValueKind::Table { allowed: limits::ALLOWED, read: limits::read, check: limits::check }),
    key("lines", ValueKind::Table { allowed: lines::ALLOWED, read: lines::read, check: lines::check }),
    key("peers", ValueKind::Table { allowed: peers::ALLOWED, read: peers::read, check: peers::check }),
    key("texts.noCandidate", player_text(|c| &mut c.texts.no_candidate)),
    key("texts.refused", player_text(|c| &mut c.texts.refused)),
    key("texts.notAllowed", player_text(|c| &mut c.texts.not_allowed)),
    key("texts.killSwitch", player_text(|c| &mut c.texts.kill_switch)),
    key("texts.lost", player_text(|c| &mut c.texts.lost)),
    key("texts.storeDown", player_text(|c| &mut c.texts.store_down)),
    key("texts.limited", player_text(|c| &mut c.texts.limited)),
    key("texts.draining", player_text(|c| &mut c.texts.draining)),
    key("texts.queueFull", player_text(|c| &mut c.texts.queue_full)),
    key("texts.waitEnded", player_text(|c| &mut c.texts.wait_ended)),
    key("texts.waitedTooLong", player_text(|c| &mut c.texts.waited_too_long)),
    key("texts.noEntry", player_text(|c| &mut c.texts.no_entry)),
    key("texts.notPlaced", player_text(|c| &mut c.texts.not_placed)),
];

const STORE_URL_ALLOWED: &str = "redis://[user:password@]host[:port][/db] or unix:///path[?db=n], without blanks, or \"\" where MAITRED_STORE gives it";

/// The key of this path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// The names that may stand directly under `section` (`""` for the top), in the order of the table. Empty where it is
/// no section.
pub(super) fn names_under(section: &str) -> Vec<&'static str> {
    let mut names = Vec::new();
    for key in KEYS {
        let rest = match section {
            "" => Some(key.path),
            _ => key.path.strip_prefix(section).and_then(|rest| rest.strip_prefix('.')),
        };
        if let Some(name) = rest.and_then(|rest| rest.split('.').next())
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names
}

pub(super) fn set_zone(config: &mut Config, text: &str) -> bool {
    Zone::new(text).map(|zone| config.zone = zone).is_ok()
}

pub(super) fn set_node_addr(config: &mut Config, text: &str) -> bool {
    let fits = is_addr(text);
    if fits {
        text.clone_into(&mut config.node.addr);
    }
    fits
}

pub(super) fn set_node_id(config: &mut Config, text: &str) -> bool {
    if text.is_empty() {
        config.node.id = None;
        return true;
    }
    NodeId::new(text).map(|id| config.node.id = Some(id)).is_ok()
}

fn set_role(config: &mut Config, text: &str) -> bool {
    Role::new(text).map(|role| config.node.role = role).is_ok()
}

pub(super) fn set_store_url(config: &mut Config, text: &str) -> bool {
    let url = SecretUrl::new(text);
    let fits = url.is_some() || text.is_empty();
    if fits {
        config.store.url = url;
    }
    fits
}

fn set_on_no_candidate(config: &mut Config, text: &str) -> bool {
    config.selector.on_no_candidate = match text {
        "refuse" => OnNoCandidate::Refuse,
        "queue" => OnNoCandidate::Queue,
        _ => return false,
    };
    true
}

fn is_variable(text: &str) -> bool {
    text.len() <= NAME_MAX_BYTES
        && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
        && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}
