//! The store URL as the config holds it: it may carry a password, so it shows itself only when asked to (STO-12).

use std::fmt;

/// A store URL that never prints its password. Only the scheme is checked here; the store's own parser reads the rest.
///
/// `Debug` and `Display` replace user and password by `***`, and everything behind the scheme where the rest is not
/// plainly a host, port, path and database (a password may stand in a wrong place).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// Wraps `url`, or answers `None` where it is none of the allowed forms: `redis://…` or `unix:///…`, without
    /// blanks and control characters.
    pub fn new(url: impl Into<String>) -> Option<Self> {
        let url = url.into();
        let rest = url.strip_prefix("redis://").or_else(|| url.strip_prefix("unix:///"))?;
        let clean = !rest.is_empty() && !rest.chars().any(|c| c.is_whitespace() || c.is_control());
        clean.then_some(Self(url))
    }

    /// The whole URL with its password, for whoever connects. Do not print it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", ""));
        let (user, place) = match rest.rsplit_once('@') {
            Some((_, place)) => ("***@", place),
            None => ("", rest),
        };
        let plain = if scheme == "unix" { is_plain_path(place) } else { is_plain_host(place) };
        // A query before the last `@` may hold a password that itself contains an `@`.
        let query_in_front = rest.len() > place.len() && rest.contains('?');
        if plain && !query_in_front { write!(f, "{scheme}://{user}{place}") } else { write!(f, "{scheme}://***") }
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretUrl({self})")
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `host[:port][/db]` and nothing else.
fn is_plain_host(place: &str) -> bool {
    let (authority, db) = place.split_once('/').unwrap_or((place, "0"));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, "0"),
    };
    let name = |text: &str, more: &[u8]| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
    };
    let host_is_plain = match host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(inner) => name(inner, b":."),
        None => name(host, b".-_"),
    };
    host_is_plain && is_digits(port) && (db.is_empty() || is_digits(db))
}

/// `/path[?db=n]` and nothing else.
fn is_plain_path(place: &str) -> bool {
    let (path, query) = place.split_once('?').unwrap_or((place, "db=0"));
    path.starts_with('/')
        && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte))
        && query.strip_prefix("db=").is_some_and(is_digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    // STO-12: who reads a log or an error must not learn the store's password, wherever in the URL it was put.
    #[test]
    fn sto_12_a_password_is_never_shown() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("redis://store.example/3", "redis://store.example/3"),
            ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
            ("redis://[::1]", "redis://[::1]"),
            ("redis://user:hunter2@host:6379/0", "redis://***@host:6379/0"),
            ("redis://:hunter2@host", "redis://***@host"),
            ("redis://:hun@hunter2@host", "redis://***@host"),
            ("redis://:hunter2/x@host", "redis://***@host"),
            ("redis://:hunter2?x@host", "redis://***"),
            ("redis://:hunter2", "redis://***"),
            ("redis://user:hunter2", "redis://***"),
            ("redis://host:6379?password=hunter2", "redis://***"),
            ("redis://host/hunter2", "redis://***"),
            ("unix:///run/redis.sock", "unix:///run/redis.sock"),
            ("unix:///run/redis.sock?db=2", "unix:///run/redis.sock?db=2"),
            ("unix:///run/redis.sock?db=2&pass=hunter2", "unix://***"),
            ("unix:///run/redis.sock?pass=a@/hunter2", "unix://***"),
            ("unix:///run/redis.sock?pass=hunter2", "unix://***"),
        ] {
            let url = SecretUrl::new(url).expect(url);
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), format!("SecretUrl({shown})"));
        }
    }

    #[test]
    fn pol_1_only_the_documented_schemes_are_taken() {
        for bad in
            ["", "redis://", "unix:///", "unix://run", "http://x", "localhost:6379", "redis://a b", "redis://a\n"]
        {
            assert_eq!(SecretUrl::new(bad), None, "{bad:?}");
        }
    }
}
