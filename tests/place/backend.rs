//! Real listeners: one that counts what reaches it, one that takes no connection, one that refuses them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::support::wait::eventually;

const LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
struct Seen {
    connections: AtomicUsize,
    ended: AtomicUsize,
    bytes: Mutex<Vec<u8>>,
}

/// A backend that reads what it is sent until the other side ends, and says nothing.
pub struct Backend {
    pub addr: SocketAddr,
    seen: Arc<Seen>,
    _accepting: AbortOnDropHandle<()>,
}

impl Backend {
    pub async fn start() -> Self {
        Self::on(SocketAddr::from(([127, 0, 0, 1], 0)), false).await
    }

    /// One that hangs up at the first byte.
    pub async fn rude() -> Self {
        Self::on(SocketAddr::from(([127, 0, 0, 1], 0)), true).await
    }

    pub async fn on(addr: SocketAddr, rude: bool) -> Self {
        let listener = TcpListener::bind(addr).await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let seen = Arc::new(Seen::default());
        let counted = Arc::clone(&seen);
        let accepting = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.connections.fetch_add(1, Ordering::SeqCst);
                let seen = Arc::clone(&counted);
                tokio::spawn(async move {
                    let mut chunk = [0; 1_024];
                    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
                        seen.bytes.lock().expect("not poisoned").extend_from_slice(&chunk[..read]);
                        if rude {
                            break;
                        }
                    }
                    seen.ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { addr, seen, _accepting: AbortOnDropHandle::new(accepting) }
    }

    pub fn text(&self) -> String {
        self.addr.to_string()
    }

    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.seen.bytes.lock().expect("not poisoned").clone()
    }

    /// Waits until this many connections came and all of them are closed, and hands back what they brought.
    pub async fn closed(&self, connections: usize) -> Vec<u8> {
        eventually("the connections came and are closed", LIMIT, async || {
            self.connections() == connections && self.seen.ended.load(Ordering::SeqCst) == connections
        })
        .await;
        self.bytes()
    }
}

/// A port that refuses: bound, so that nobody else gets it, and nobody listens.
pub struct Closed {
    pub addr: SocketAddr,
    _socket: TcpSocket,
}

impl Closed {
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        Self { addr: socket.local_addr().expect("an address"), _socket: socket }
    }
}

/// A listener that never accepts, and whose line is full: connecting to it hangs.
pub struct Blackhole {
    pub addr: SocketAddr,
    _listener: TcpListener,
    _line: Vec<TcpStream>,
}

impl Blackhole {
    pub async fn start() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
        let listener = socket.listen(1).expect("a listener");
        let addr = listener.local_addr().expect("an address");
        let mut line = Vec::new();
        // Each system has its own idea of how long a line of one is.
        while let Ok(stream) = timeout(Duration::from_millis(300), TcpStream::connect(addr)).await {
            line.push(stream.expect("connected"));
            assert!(line.len() < 64, "the line never fills");
        }
        Self { addr, _listener: listener, _line: line }
    }

    /// Sockets of this machine that are connecting to it; `None` where the system does not tell.
    pub fn connecting(&self) -> Option<usize> {
        let table = std::fs::read_to_string("/proc/self/net/tcp").ok()?;
        let remote = format!("0100007F:{:04X}", self.addr.port());
        Some(table.lines().filter(|line| line.contains(&format!(" {remote} 02 "))).count())
    }
}
