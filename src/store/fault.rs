use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::error::{Error, StoreRefusal};

/// True where the store said that it does not have the script.
pub(super) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The client's error in the crate's terms. Nothing the store says holds a password; what the client says of a
/// connection holds at most an address.
pub(super) fn typed(during: &'static str, error: &RedisError) -> Error {
    // The error of a pipeline has no code and no text of its own: its first refusal says why.
    if let Some((_, first)) = error.clone().into_server_errors().as_deref().and_then(|all| all.first()) {
        let code = first.code();
        let detail = first.details().map_or_else(|| code.to_owned(), |details| format!("{code} {details}"));
        return Error::Refused { during, refusal: refusal(code, &detail), detail };
    }
    match error.kind() {
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::ClusterConnectionNotFound => {
            Error::Unreachable { during, reason: error.to_string() }
        }
        ErrorKind::AuthenticationFailed => {
            let detail = error.code().unwrap_or("authentication failed").to_owned();
            Error::Refused { during, refusal: StoreRefusal::Unauthenticated, detail }
        }
        ErrorKind::Server(_) | ErrorKind::Extension => {
            let code = error.code().unwrap_or("");
            let detail = match error.detail() {
                Some(detail) => format!("{code} {detail}"),
                None => code.to_owned(),
            };
            Error::Refused { during, refusal: refusal(code, &detail), detail }
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
}
