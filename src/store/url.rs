use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

use crate::error::{Error, Result};

const FORMS: &str = "allowed: redis://[user:password@]host[:port][/db], unix:///path[?db=n&user=u&pass=p]";

/// Where the store is. Debug and Display show the address and never the user or the password.
#[derive(Clone)]
pub struct StoreUrl {
    info: ConnectionInfo,
}

impl StoreUrl {
    /// Reads `redis://[user:password@]host[:port][/db]` or `unix:///path[?db=n&user=u&pass=p]`.
    ///
    /// Errors with [`Error::StoreUrl`]; its text holds neither the URL nor the password.
    pub fn parse(url: &str) -> Result<Self> {
        let refuse = |problem: String| Error::StoreUrl { problem };
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        match scheme {
            Some("redis" | "unix") => {}
            Some(other) if other.len() <= 32 && other.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+') => {
                return Err(refuse(format!("scheme {other:?} is not supported; {FORMS}")));
            }
            _ => return Err(refuse(format!("it has no scheme; {FORMS}"))),
        }
        let info = url.into_connection_info().map_err(|_| refuse(format!("it cannot be read; {FORMS}")))?;
        let keepalive =
            socket2::TcpKeepalive::new().with_time(Duration::from_secs(5)).with_interval(Duration::from_secs(2));
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(Duration::from_secs(5));
        let settings = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("maitred", env!("CARGO_PKG_VERSION"));
        Ok(Self { info: info.set_tcp_settings(tcp).set_redis_settings(settings) })
    }

    /// A Unix socket, without user or password.
    pub fn unix(path: impl Into<PathBuf>) -> Result<Self> {
        Self::parse(&format!("unix://{}", path.into().display()))
    }

    pub(super) fn info(&self) -> ConnectionInfo {
        self.info.clone()
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let db = self.info.redis_settings().db();
        match self.info.addr() {
            ConnectionAddr::Tcp(host, port) => write!(f, "redis://{host}:{port}/{db}"),
            ConnectionAddr::Unix(path) => write!(f, "unix://{}?db={db}", path.display()),
            _ => f.write_str("a store"),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sto_12_a_password_shows_in_no_output() {
        let url = StoreUrl::parse("redis://cook:hunter2@127.0.0.1:7000/3").expect("valid");
        assert_eq!(url.to_string(), "redis://127.0.0.1:7000/3");
        let text = format!("{url:?} {url}");
        assert!(!text.contains("hunter2") && !text.contains("cook"), "{text}");
        for bad in ["hunter2@host", "http://:hunter2@host", "redis://:hunter2@host:99999", "redis://"] {
            let error = StoreUrl::parse(bad).expect_err(bad);
            let text = format!("{error} {error:?}");
            assert!(!text.contains("hunter2") && text.contains("allowed"), "{text}");
        }
    }
}
