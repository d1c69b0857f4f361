//! A real RESP server for one test: on a free loopback port or a Unix socket, in a directory of its own, ended on drop.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{resp, signal};

/// Names the server binary for the tests; without it the first of [`SERVERS`] on PATH is taken.
pub const SERVER_VARIABLE: &str = "MAITRED_TEST_SERVER";
/// Servers that take the arguments of redis-server.
pub const SERVERS: [&str; 2] = ["redis-server", "valkey-server"];

/// Below the range from which Linux and macOS give ports to outgoing connections: otherwise a client that reconnects
/// while the server is down can meet itself on that port, and the server never gets it back.
const PORTS: std::ops::Range<u16> = 15_000..32_000;
const START_LIMIT: Duration = Duration::from_secs(20);
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

#[derive(Debug, Clone)]
enum Endpoint {
    Tcp(u16),
    Unix(PathBuf),
}

/// A running server, or one that was stopped and can be started again on the same address.
#[derive(Debug)]
pub struct TestStore {
    binary: PathBuf,
    args: Vec<String>,
    endpoint: Endpoint,
    child: Option<Child>,
    // Last, so that the directory goes after the server that writes into it.
    dir: TempDir,
}

/// Finds the server to test with: the value of [`SERVER_VARIABLE`] if set, else the first of [`SERVERS`] in `path`.
pub fn find_server(named: Option<&OsStr>, path: Option<&OsStr>) -> Result<PathBuf, String> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        return if named.is_file() {
            Ok(named)
        } else {
            Err(format!("{SERVER_VARIABLE} names {}, which is no file; `make test` sets it right", named.display()))
        };
    }
    let folders: Vec<PathBuf> = path.map(|path| std::env::split_paths(path).collect()).unwrap_or_default();
    SERVERS
        .iter()
        .flat_map(|server| folders.iter().map(move |folder| folder.join(server)))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| {
            format!(
                "this test needs a real store, and PATH has no {}: run `make test`, which installs one, or set \
                 {SERVER_VARIABLE} to the path of a server",
                SERVERS.join(" and no ")
            )
        })
}

impl TestStore {
    /// Starts a server on a free loopback port, without persistence.
    pub fn start() -> Self {
        Self::with_args(&[])
    }

    /// Starts a server that listens on a Unix socket only.
    pub fn start_unix() -> Self {
        let dir = new_dir();
        let socket = dir.path().join("store.sock");
        Self::launch(dir, Endpoint::Unix(socket), &[]).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Starts a server on a free loopback port with arguments after the usual ones, so that they win:
    /// `&["--appendonly", "yes"]`.
    pub fn with_args(args: &[&str]) -> Self {
        let mut last = String::new();
        for _ in 0..START_TRIES {
            match Self::launch(new_dir(), Endpoint::Tcp(free_port()), args) {
                Ok(store) => return store,
                // Somebody took the port between the look and the start.
                Err(why) if why.contains("in use") => last = why,
                Err(why) => panic!("{why}"),
            }
        }
        panic!("found no free port in {START_TRIES} tries; the last answer: {last}");
    }

    fn launch(dir: TempDir, endpoint: Endpoint, args: &[&str]) -> Result<Self, String> {
        let binary = find_server(std::env::var_os(SERVER_VARIABLE).as_deref(), std::env::var_os("PATH").as_deref())?;
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut store = Self { binary, args, endpoint, child: None, dir };
        store.spawn()?;
        Ok(store)
    }

    /// The URL for clients, without any parameter.
    pub fn url(&self) -> String {
        match &self.endpoint {
            Endpoint::Tcp(port) => format!("redis://127.0.0.1:{port}"),
            Endpoint::Unix(socket) => format!("unix://{}", socket.display()),
        }
    }

    /// The loopback port; the same one after a restart. Panics for a server on a Unix socket.
    pub fn port(&self) -> u16 {
        match &self.endpoint {
            Endpoint::Tcp(port) => *port,
            Endpoint::Unix(socket) => panic!("the store listens on {} and on no port", socket.display()),
        }
    }

    /// The process id of the server. Panics while it is stopped.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the test store is stopped").id()
    }

    /// The directory that the server works in: `dump.rdb`, `appendonlydir`.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// What the server has printed so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Ends the server the polite way (SIGTERM) and waits for it. Without persistence its data is gone.
    pub fn stop(&mut self) {
        signal::send(self.running_mut(), Signal::TERM);
        let mut child = self.child.take().expect("just signalled");
        if signal::wait_for_exit(&mut child, STOP_LIMIT).is_none() {
            signal::end(&mut child);
            panic!("the store did not end within {STOP_LIMIT:?} of SIGTERM:\n{}", self.log());
        }
    }

    /// Ends the server with SIGKILL and waits until it is gone. Fine if it is stopped already.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            signal::end(&mut child);
        }
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
        if self.child.is_some() {
            let saved = self.ask("SAVE").unwrap_or_else(|error| format!("-{error}"));
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
        let child = self.child.as_ref().expect("the test store is stopped");
        if let Err(error) = kill_process(Pid::from_child(child), signal) {
            panic!("could not send {signal:?} to the store: {error}");
        }
    }

    fn running_mut(&mut self) -> &mut Child {
        self.child.as_mut().expect("the test store is stopped")
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("server.log")
    }

    fn command(&self) -> io::Result<Command> {
        fs::create_dir_all(self.data_dir())?;
        let log = File::create(self.log_path())?;
        let mut command = Command::new(&self.binary);
        match &self.endpoint {
            Endpoint::Tcp(port) => command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]),
            Endpoint::Unix(socket) => command.args(["--port", "0", "--unixsocket"]).arg(socket),
        };
        command
            .arg("--dir")
            .arg(self.data_dir())
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(command)
    }

    fn spawn(&mut self) -> Result<(), String> {
        let spawned = self.command().and_then(|mut command| command.spawn());
        let mut child = spawned.map_err(|error| format!("could not start {}: {error}", self.binary.display()))?;
        let end = Instant::now() + START_LIMIT;
        while Instant::now() < end {
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!("{} ended at its start ({status}):\n{}", self.binary.display(), self.log()));
            }
            if self.answers(child.id()) {
                self.child = Some(child);
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        signal::end(&mut child);
        Err(format!("{} did not answer PING within {START_LIMIT:?}:\n{}", self.binary.display(), self.log()))
    }

    fn respawn(&mut self) {
        let end = Instant::now() + START_LIMIT;
        loop {
            match self.spawn() {
                Ok(()) => return,
                Err(why) if why.contains("in use") && Instant::now() < end => thread::sleep(Duration::from_millis(50)),
                Err(why) => panic!("{why}"),
            }
        }
    }

    /// Whether the server answers, and is the child and not a stranger that was quicker to take the port.
    fn answers(&self, pid: u32) -> bool {
        match self.ask("PING") {
            Ok(answer) if answer.starts_with("+PONG") => self
                .ask("INFO server")
                .is_ok_and(|info| info.lines().any(|line| line.trim_end() == format!("process_id:{pid}"))),
            // A server that wants a password is up, and says nothing about itself.
            Ok(answer) => answer.starts_with("-NOAUTH"),
            Err(_) => false,
        }
    }

    /// One inline command on a connection of its own, answered in raw RESP.
    fn ask(&self, line: &str) -> io::Result<String> {
        match &self.endpoint {
            Endpoint::Tcp(port) => {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
                let stream = TcpStream::connect_timeout(&address, ASK_LIMIT)?;
                stream.set_read_timeout(Some(ASK_LIMIT))?;
                ask_on(stream, line)
            }
            Endpoint::Unix(socket) => {
                let stream = UnixStream::connect(socket)?;
                stream.set_read_timeout(Some(ASK_LIMIT))?;
                ask_on(stream, line)
            }
        }
    }
}

impl Drop for TestStore {
    fn drop(&mut self) {
        self.kill();
    }
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

fn ask_on(mut stream: impl Read + Write, line: &str) -> io::Result<String> {
    stream.write_all(format!("{line}\r\n").as_bytes())?;
    let mut answer = Vec::new();
    let mut chunk = [0; 4_096];
    loop {
        let whole = resp::reply(&answer).map_err(|error| io::Error::other(error.0))?;
        if let Some(reply) = whole {
            answer.truncate(reply.len);
            return String::from_utf8(answer).map_err(io::Error::other);
        }
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => answer.extend_from_slice(&chunk[..read]),
        }
    }
}

fn free_port() -> u16 {
    for _ in 0..1_000 {
        let port = rand::random_range(PORTS);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free loopback port in {PORTS:?}");
}

fn new_dir() -> TempDir {
    tempfile::Builder::new().prefix("maitred-").tempdir().expect("could not make a directory for the store")
}

/// Whether anything accepts connections on that loopback port.
pub fn listens(port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), ASK_LIMIT).is_ok()
}

/// Whether a Unix socket file is there and somebody accepts on it.
pub fn listens_unix(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}
