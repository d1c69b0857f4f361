//! A real RESP server for one test: on a free loopback port or a Unix socket, in a directory of its own, ended on drop.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};
use rustix::process::{Pid, Signal, kill_process};

use crate::server::{Endpoint, Missing, Server, find};
use crate::signal;

/// Names the server binary for the tests; without it the first of [`SERVERS`] on PATH is taken.
pub const SERVER_VARIABLE: &str = "MAITRED_TEST_SERVER";
/// Servers that take the arguments of redis-server.
pub const SERVERS: [&str; 2] = ["redis-server", "valkey-server"];

/// Longest wait for the port that a server had before its restart.
const RESTART_LIMIT: Duration = Duration::from_secs(20);
const STOP_LIMIT: Duration = Duration::from_secs(15);
const START_TRIES: usize = 20;
const ASK_LIMIT: Duration = Duration::from_secs(5);

/// Calls of one command and the server's time for them, out of `INFO commandstats`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommandStat {
    /// How often it ran.
    pub calls: u64,
    /// Microseconds that it took in all.
    pub usec: u64,
}

/// A running server, or one that was stopped and can be started again on the same address.
#[derive(Debug)]
pub struct TestStore {
    server: Server,
}

/// Finds the server to test with: the value of [`SERVER_VARIABLE`] if set, else the first of [`SERVERS`] in `path`.
pub fn find_server(named: Option<&OsStr>, path: Option<&OsStr>) -> Result<PathBuf, String> {
    find(&SERVERS, named, path).map_err(|missing| match missing {
        Missing::NoFile(named) => {
            format!("{SERVER_VARIABLE} names {}, which is no file; `make test` sets it right", named.display())
        }
        Missing::NotOnPath => format!(
            "this test needs a real store, and PATH has no {}: run `make test`, which installs one, or set \
             {SERVER_VARIABLE} to the path of a server",
            SERVERS.join(" and no ")
        ),
    })
}

impl TestStore {
    /// Starts a server on a free loopback port, without persistence.
    pub fn start() -> Self {
        Self::with_args(&[])
    }

    /// Starts a server that listens on a Unix socket only.
    pub fn start_unix() -> Self {
        let server = Server::on_socket(binary()).expect("could not make a directory for the store");
        Self::launch(server).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Starts a server on a free loopback port with arguments after the usual ones, so that they win:
    /// `&["--appendonly", "yes"]`.
    pub fn with_args(args: &[&str]) -> Self {
        let mut last = String::new();
        for _ in 0..START_TRIES {
            let server = Server::on_port(binary(), args).expect("could not make a place for the store");
            match Self::launch(server) {
                Ok(store) => return store,
                // Somebody took the port between the look and the start.
                Err(why) if why.contains("in use") => last = why,
                Err(why) => panic!("{why}"),
            }
        }
        panic!("found no free port in {START_TRIES} tries; the last answer: {last}");
    }

    fn launch(mut server: Server) -> Result<Self, String> {
        server.start()?;
        Ok(Self { server })
    }

    /// The URL for clients, without any parameter.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The loopback port; the same one after a restart. Panics for a server on a Unix socket.
    pub fn port(&self) -> u16 {
        match self.server.endpoint() {
            Endpoint::Tcp(port) => *port,
            Endpoint::Unix(socket) => panic!("the store listens on {} and on no port", socket.display()),
        }
    }

    /// The process id of the server. Panics while it is stopped.
    pub fn pid(&self) -> u32 {
        self.server.pid().expect("the test store is stopped")
    }

    /// The directory that the server works in: `dump.rdb`, `appendonlydir`.
    pub fn data_dir(&self) -> PathBuf {
        self.server.data_dir()
    }

    /// What the server has printed so far.
    pub fn log(&self) -> String {
        self.server.log()
    }

    /// Ends the server the polite way (SIGTERM) and waits for it. Without persistence its data is gone.
    pub fn stop(&mut self) {
        signal::send(self.running_mut(), Signal::TERM);
        let mut child = self.server.child_mut().take().expect("just signalled");
        if signal::wait_for_exit(&mut child, STOP_LIMIT).is_none() {
            signal::end(&mut child);
            panic!("the store did not end within {STOP_LIMIT:?} of SIGTERM:\n{}", self.log());
        }
    }

    /// Ends the server with SIGKILL and waits until it is gone. Fine if it is stopped already.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Freezes the server (SIGSTOP): connections stay, nothing is answered.
    pub fn sigstop(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a frozen server go on.
    pub fn sigcont(&self) {
        self.signal(Signal::CONT);
    }

    /// Starts an empty server on the same address, ending the running one if need be.
    pub fn restart_empty(&mut self) {
        self.kill();
        fs::remove_dir_all(self.data_dir()).expect("could not empty the directory of the store");
        self.respawn();
    }

    /// Starts the server again with its data on the same address. A running one saves a snapshot and ends first; a
    /// stopped or killed one comes back with what it had made durable (`--appendonly yes`), else empty.
    pub fn restart_with_data(&mut self) {
        if self.server.child().is_some() {
            let saved = self.server.ask("SAVE").unwrap_or_else(|error| format!("-{error}"));
            assert!(saved.starts_with('+'), "the store could not save: {saved}");
            self.stop();
        }
        self.respawn();
    }

    /// A connection of its own for the test, with a timeout that a busy machine does not reach.
    pub async fn conn(&self) -> MultiplexedConnection {
        let client = Client::open(self.url()).expect("the URL of the test store is not valid");
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(10)))
            .set_response_timeout(Some(Duration::from_secs(30)));
        match client.get_multiplexed_async_connection_with_config(&patient).await {
            Ok(connection) => connection,
            Err(error) => panic!("could not connect to the test store: {error}\n{}", self.log()),
        }
    }

    /// Deletes everything in the store.
    pub async fn flushall(&self) {
        let done: redis::RedisResult<()> = redis::cmd("FLUSHALL").query_async(&mut self.conn().await).await;
        done.expect("FLUSHALL failed");
    }

    /// A child that has ended and was not waited for keeps its process id, so nobody else can get the signal.
    fn signal(&self, signal: Signal) {
        let child = self.server.child().expect("the test store is stopped");
        if let Err(error) = kill_process(Pid::from_child(child), signal) {
            panic!("could not send {signal:?} to the store: {error}");
        }
    }

    fn running_mut(&mut self) -> &mut Child {
        self.server.child_mut().as_mut().expect("the test store is stopped")
    }

    fn respawn(&mut self) {
        let end = Instant::now() + RESTART_LIMIT;
        loop {
            match self.server.start() {
                Ok(()) => return,
                Err(why) if why.contains("in use") && Instant::now() < end => thread::sleep(Duration::from_millis(50)),
                Err(why) => panic!("{why}"),
            }
        }
    }
}

fn binary() -> PathBuf {
    find_server(std::env::var_os(SERVER_VARIABLE).as_deref(), std::env::var_os("PATH").as_deref())
        .unwrap_or_else(|why| panic!("{why}"))
}

/// Reads `INFO commandstats`: command in lower case as the server names it (`evalsha`, `config|get`) → its figures.
pub async fn command_stats(conn: &mut MultiplexedConnection) -> BTreeMap<String, CommandStat> {
    let info: String =
        redis::cmd("INFO").arg("commandstats").query_async(conn).await.expect("INFO commandstats failed");
    info.lines()
        .filter_map(|line| {
            let (name, fields) = line.trim_end().strip_prefix("cmdstat_")?.split_once(':')?;
            let field = |wanted: &str| {
                let value = fields.split(',').find_map(|field| field.strip_prefix(wanted)?.strip_prefix('='))?;
                value.parse().ok()
            };
            Some((name.to_owned(), CommandStat { calls: field("calls")?, usec: field("usec")? }))
        })
        .collect()
}

/// Whether anything accepts connections on that loopback port.
pub fn listens(port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), ASK_LIMIT).is_ok()
}

/// Whether a Unix socket file is there and somebody accepts on it.
pub fn listens_unix(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}
