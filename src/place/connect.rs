use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, Stream};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::decision::words_of;
use super::outcome::AttemptEnd;

/// Most addresses of one name that are tried.
pub(super) const ADDRESSES_MAX: usize = 16;
/// How long an address is tried alone before the next one of its name joins in.
pub(super) const STAGGER: Duration = Duration::from_millis(250);
/// Longest `host:port`, in bytes.
const ADDR_MAX_BYTES: usize = 262;

/// Turns a host into addresses. An application brings its own where the system's does not do: service discovery, SRV
/// records, a fixed table.
pub trait Resolver: Send + Sync + 'static {
    /// The addresses of `host`, best first; the first 16 are tried. Dropped where the time is over. A host that is an IP
    /// address never comes here.
    fn resolve(&self, host: &str, port: u16) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send;
}

/// A resolver whose type is forgotten.
pub(super) trait Resolve: Send + Sync {
    fn addresses<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

impl<R: Resolver> Resolve for R {
    fn addresses<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { self.resolve(host, port).await })
    }
}

/// Connects to `addr` and sends nothing. Dropped, it closes every socket it opened.
pub(super) async fn connect(addr: &str, resolver: &Arc<dyn Resolve>) -> Result<TcpStream, AttemptEnd> {
    let (host, port) = split(addr).ok_or(AttemptEnd::BadAddress)?;
    let addresses = match host.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, port)],
        Err(_) => resolved(host, port, resolver).await.map_err(|error| AttemptEnd::Dns { error })?,
    };
    race(addresses).await.map_err(|error| AttemptEnd::Tcp { error })
}

async fn resolved(host: &str, port: u16, resolver: &Arc<dyn Resolve>) -> Result<Vec<SocketAddr>, String> {
    // The application's code may panic, and no panic crosses the library.
    let asked = AssertUnwindSafe(async { resolver.addresses(host, port).await }).catch_unwind().await;
    let found = asked.map_err(|panic| format!("the resolver panicked: {}", words_of(&*panic)))?;
    let found = found.map_err(|error| error.to_string())?;
    if found.is_empty() { Err("no address".to_owned()) } else { Ok(found) }
}

/// Host and port of `host:port`, an IPv6 host in brackets.
fn split(addr: &str) -> Option<(&str, u16)> {
    let (host, port) = addr.rsplit_once(':')?;
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse::<u16>().ok().filter(|port| digits && *port > 0)?;
    let host = match host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok().then_some(inner)?,
        None => Some(host).filter(|host| !host.is_empty() && !host.contains([':', '[', ']']))?,
    };
    let fits = addr.len() <= ADDR_MAX_BYTES && !host.chars().any(|c| c.is_whitespace() || c.is_control());
    fits.then_some((host, port))
}

/// Tries the addresses one after the other; one that neither connects nor fails for a while is joined by the next. The
/// first that connects is taken, the others are closed.
async fn race(addresses: Vec<SocketAddr>) -> Result<TcpStream, String> {
    let mut waiting = in_turns(addresses).into_iter().take(ADDRESSES_MAX);
    let mut under_way = FuturesUnordered::new();
    let mut said = Vec::new();
    under_way.extend(waiting.next().map(open));
    while !under_way.is_empty() {
        let more = waiting.len() > 0;
        tokio::select! {
            biased;
            Some((address, end)) = poll_fn(|context| std::pin::Pin::new(&mut under_way).poll_next(context)) => match end {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    said.push(format!("{address}: {error}"));
                    under_way.extend(waiting.next().map(open));
                }
            },
            () = sleep(STAGGER), if more => under_way.extend(waiting.next().map(open)),
        }
    }
    Err(said.join(", "))
}

async fn open(address: SocketAddr) -> (SocketAddr, io::Result<TcpStream>) {
    let opened = async {
        let stream = TcpStream::connect(address).await?;
        // A port nobody listens on, in the range of outgoing connections: TCP lets a socket connect to itself.
        if stream.local_addr()? == stream.peer_addr()? {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    (address, opened.await)
}

/// The addresses with the families in turns, beginning with that of the first, so that a broken family costs one wait.
fn in_turns(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let six_first = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<SocketAddr>, Vec<SocketAddr>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == six_first);
    let mut second = second.into_iter();
    let mut turns: Vec<SocketAddr> =
        first.into_iter().flat_map(|address| [Some(address), second.next()]).flatten().collect();
    turns.extend(second);
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plc_4_an_address_is_host_and_port_or_nothing() {
        for (addr, want) in [
            ("play.example:25565", ("play.example", 25_565)),
            ("10.0.0.7:1", ("10.0.0.7", 1)),
            ("[::1]:65535", ("::1", 65_535)),
        ] {
            assert_eq!(split(addr), Some(want));
        }
        for addr in ["", "h", ":1", "h:", "h:0", "h:65536", "h:+1", "::1:1", "[x]:1", "[::1]", "a b:1", "a\n:1"] {
            assert_eq!(split(addr), None, "{addr:?}");
        }
        assert_eq!(split(&format!("{}:1", "h".repeat(261))), None);
    }

    #[test]
    fn plc_3_families_take_turns() {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("valid")).collect::<Vec<SocketAddr>>();
        let mixed = parse(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"]);
        assert_eq!(in_turns(mixed), parse(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"]));
        let four = parse(&["1.1.1.1:1", "[::1]:1", "[::2]:1"]);
        assert_eq!(in_turns(four), parse(&["1.1.1.1:1", "[::1]:1", "[::2]:1"]));
        assert!(in_turns(Vec::new()).is_empty());
    }
}
