use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::connect::Store;
use crate::error::{Error, StoreRefusal};

/// True where the store said that it does not have the script.
pub(super) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

impl Store {
    /// The client's error in the crate's terms, with the store that was asked.
    pub(super) fn fault(&self, during: &'static str, error: &RedisError) -> Error {
        match typed(during, error) {
            Error::Unreachable { during, reason, .. } => self.unreachable(during, &reason),
            error => error,
        }
    }

    /// [`fault`](Self::fault) of a command about these keys or channels.
    pub(super) fn fault_at<K: ToString>(
        &self,
        during: &'static str,
        error: &RedisError,
        keys: impl IntoIterator<Item = K>,
    ) -> Error {
        at(self.fault(during, error), keys)
    }

    /// This store did not answer.
    pub(super) fn unreachable(&self, during: &'static str, reason: &str) -> Error {
        Error::Unreachable { during, store: Some(self.options().url.to_string()), reason: reason.to_owned() }
    }
}

/// Names the keys of a refused command, where one of them may be the reason.
pub(super) fn at<K: ToString>(mut error: Error, about: impl IntoIterator<Item = K>) -> Error {
    if let Error::Refused {
        refusal: StoreRefusal::WrongType | StoreRefusal::Denied | StoreRefusal::Other, keys, ..
    } = &mut error
        && keys.is_empty()
    {
        keys.extend(about.into_iter().take(Error::REFUSED_KEYS_MAX).map(|key| key.to_string()));
    }
    error
}

/// The client's error in the crate's terms. Nothing the store says holds a password; what the client says of a
/// connection holds at most an address.
pub(super) fn typed(during: &'static str, error: &RedisError) -> Error {
    // The error of a pipeline has no code and no text of its own: its first refusal says why.
    if let Some((_, first)) = error.clone().into_server_errors().as_deref().and_then(|all| all.first()) {
        let code = first.code();
        let detail = first.details().map_or_else(|| code.to_owned(), |details| format!("{code} {details}"));
        return Error::Refused { during, refusal: refusal(code, &detail), detail, keys: Vec::new() };
    }
    match error.kind() {
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::ClusterConnectionNotFound => {
            Error::Unreachable { during, store: None, reason: error.to_string() }
        }
        ErrorKind::AuthenticationFailed => {
            let detail = error.code().unwrap_or("authentication failed").to_owned();
            Error::Refused { during, refusal: StoreRefusal::Unauthenticated, detail, keys: Vec::new() }
        }
        ErrorKind::Server(_) | ErrorKind::Extension => {
            let code = error.code().unwrap_or("");
            let detail = match error.detail() {
                Some(detail) => format!("{code} {detail}"),
                None => code.to_owned(),
            };
            Error::Refused { during, refusal: refusal(code, &detail), detail, keys: Vec::new() }
        }
        _ => Error::Protocol { during, detail: error.to_string() },
    }
}

/// What an ACL's denial of a command, a key or a channel says inside a script, where it has no code.
const DENIALS: [&str; 4] = ["can't run this command", "can't access", "can't publish to", "No permissions"];

/// A script's error arrives as `ERR …` with the refusal of the inner command inside on some servers, so the text is
/// looked at where the code says nothing.
fn refusal(code: &str, detail: &str) -> StoreRefusal {
    let by_code = |word: &str| match word {
        "OOM" => Some(StoreRefusal::OutOfMemory),
        "READONLY" => Some(StoreRefusal::ReadOnly),
        "LOADING" => Some(StoreRefusal::Loading),
        "BUSY" => Some(StoreRefusal::BusyScript),
        "NOPERM" => Some(StoreRefusal::Denied),
        "NOAUTH" | "WRONGPASS" => Some(StoreRefusal::Unauthenticated),
        "WRONGTYPE" => Some(StoreRefusal::WrongType),
        "TRYAGAIN" => Some(StoreRefusal::TryAgain),
        "CLUSTERDOWN" => Some(StoreRefusal::ClusterDown),
        "NOREPLICAS" | "MASTERDOWN" => Some(StoreRefusal::NoReplicas),
        _ => None,
    };
    by_code(code)
        .or_else(|| detail.split(|c: char| !(c.is_ascii_uppercase())).filter(|word| word.len() >= 3).find_map(by_code))
        .or_else(|| DENIALS.iter().any(|text| detail.contains(text)).then_some(StoreRefusal::Denied))
        .unwrap_or(StoreRefusal::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rel_4_the_refusal_is_found_in_the_code_or_inside_a_scripts_error() {
        for (code, detail, want) in [
            ("OOM", "OOM command not allowed when used memory > 'maxmemory'.", StoreRefusal::OutOfMemory),
            ("READONLY", "READONLY You can't write against a read only replica.", StoreRefusal::ReadOnly),
            ("ERR", "ERR Error running script: @user_script:3: WRONGTYPE Operation against", StoreRefusal::WrongType),
            ("ERR", "ERR user_script:10: -OOM command not allowed", StoreRefusal::OutOfMemory),
            ("ERR", "ERR The user executing the script can't access at least one of the keys", StoreRefusal::Denied),
            ("ERR", "ERR The user executing the script can't publish to the channel", StoreRefusal::Denied),
            ("ERR", "ERR The user executing the script can't run this command or subcommand", StoreRefusal::Denied),
            ("ERR", "ERR unknown command", StoreRefusal::Other),
        ] {
            assert_eq!(refusal(code, detail), want, "{detail}");
        }
    }

    #[test]
    fn rel_4_a_refusal_names_the_keys_where_one_of_them_may_be_the_reason() {
        let refused =
            |refusal| Error::Refused { during: "node/beat", refusal, detail: "X".to_owned(), keys: Vec::new() };
        let named = |refusal, keys: &[&str]| at(refused(refusal), keys).to_string();
        assert!(named(StoreRefusal::WrongType, &["a"]).starts_with("the store refused while node/beat at a: X ("));
        assert!(
            named(StoreRefusal::Denied, &["a", "b"]).starts_with("the store refused while node/beat at one of a, b: X")
        );
        assert!(named(StoreRefusal::OutOfMemory, &["a"]).starts_with("the store refused while node/beat: X"));
        let many: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let Error::Refused { keys, .. } = at(refused(StoreRefusal::Other), &many) else { panic!("another error") };
        assert_eq!(keys.len(), Error::REFUSED_KEYS_MAX);
    }
}
