//! The reasons behind a refusal of the store and of a message to an object.

/// Why the store refused a command that reached it. Nothing was changed by the refused command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreRefusal {
    /// `OOM`: `maxmemory` is reached and the policy evicts nothing.
    OutOfMemory,
    /// `READONLY`: a replica, or a primary that was demoted.
    ReadOnly,
    /// `LOADING`: the store reads its data from disk.
    Loading,
    /// `BUSY`: another script runs for too long.
    BusyScript,
    /// `NOPERM`: the ACL of this user denies the command, a key or a channel.
    Denied,
    /// `NOAUTH` or `WRONGPASS`: the store wants other credentials.
    Unauthenticated,
    /// `WRONGTYPE`: a key holds another type than the contract says.
    WrongType,
    /// `TRYAGAIN`: slots are moving in a cluster.
    TryAgain,
    /// `CLUSTERDOWN`: the cluster serves no writes now.
    ClusterDown,
    /// `NOREPLICAS` or `MASTERDOWN`: too few replicas, or no primary.
    NoReplicas,
    /// Anything else the store answered.
    Other,
}

impl StoreRefusal {
    /// True where the same command may succeed later without anybody's help.
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Loading
                | Self::BusyScript
                | Self::TryAgain
                | Self::ClusterDown
                | Self::NoReplicas
                | Self::ReadOnly
                | Self::OutOfMemory
        )
    }

    /// What an operator can do about it, one line.
    pub fn advice(self) -> &'static str {
        match self {
            Self::OutOfMemory => "raise maxmemory or free memory; the policy should be noeviction",
            Self::ReadOnly => "point the store URL at the primary",
            Self::Loading => "wait until the store has read its data",
            Self::BusyScript => "another client's script blocks the store; see SCRIPT KILL",
            Self::Denied => "give the user the commands, keys and channels that docs/operating.md lists",
            Self::Unauthenticated => "check user and password of the store URL",
            Self::WrongType => "another program writes under maitred's keys; look at the key with TYPE",
            Self::TryAgain | Self::ClusterDown => "wait until the cluster is whole again (CLUSTER INFO)",
            Self::NoReplicas => "check the store's replicas (INFO replication)",
            Self::Other => "read the store's own message and log",
        }
    }
}

/// Where a command was refused, as the text of an error goes on: nothing where no key is known.
pub(super) fn at_keys(keys: &[String]) -> String {
    match keys {
        [] => String::new(),
        [key] => format!(" at {key}"),
        keys => format!(" at one of {}", keys.join(", ")),
    }
}

/// The store that was asked, as it stands before the reason: nothing where none was.
pub(super) fn in_front(store: Option<&str>) -> String {
    store.map_or_else(String::new, |store| format!("{store}: "))
}

/// Why a message to an object was not handled, or not to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RouteRefusal {
    /// It was forwarded as often as it may be. No handler ran.
    TooManyHops,
    /// Nobody owns the object, and its kind is not taken over on demand. No handler ran.
    NoOwner,
    /// The object is not in storage, and its kind does not create it. No handler ran.
    NotFound,
    /// The object's route changed at every read, or its owner cannot act at the moment. No handler ran.
    Again,
    /// The handler ran, and its change is not known to be in storage.
    NotSaved,
}

impl RouteRefusal {
    /// The word in replies, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooManyHops => "too_many_hops",
            Self::NoOwner => "no_owner",
            Self::NotFound => "not_found",
            Self::Again => "again",
            Self::NotSaved => "not_saved",
        }
    }

    pub(crate) fn read(word: &str) -> Option<Self> {
        [Self::TooManyHops, Self::NoOwner, Self::NotFound, Self::Again, Self::NotSaved]
            .into_iter()
            .find(|refusal| refusal.as_str() == word)
    }
}
