//! The process of a RESP server: its binary, its arguments, its start and its end.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::{resp, signal};

/// Below the range from which Linux and macOS give ports to outgoing connections: otherwise a client that reconnects
/// while the server is down can meet itself on that port, and the server never gets it back.
const PORTS: std::ops::Range<u16> = 15_000..32_000;
/// Longest time until a server answers.
const START_LIMIT: Duration = Duration::from_secs(20);
const ASK_LIMIT: Duration = Duration::from_secs(5);
const POLL_EVERY: Duration = Duration::from_millis(5);
/// Longest path of a Unix socket that every system takes, in bytes.
const SOCKET_PATH_MAX: usize = 100;
const SOCKET: &str = "store.sock";

/// Why there is no server to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// The path that was named is no file.
    NoFile(PathBuf),
    /// None of the names is on PATH.
    NotOnPath,
}

/// Finds a server: `named` if it is set, else the first of `servers` in the folders of `path`.
pub fn find(servers: &[&str], named: Option<&OsStr>, path: Option<&OsStr>) -> Result<PathBuf, Missing> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        return if named.is_file() { Ok(named) } else { Err(Missing::NoFile(named)) };
    }
    let folders: Vec<PathBuf> = path.map(|path| std::env::split_paths(path).collect()).unwrap_or_default();
    servers
        .iter()
        .flat_map(|server| folders.iter().map(move |folder| folder.join(server)))
        .find(|candidate| candidate.is_file())
        .ok_or(Missing::NotOnPath)
}

/// Where a server listens.
#[derive(Debug, Clone)]
pub(crate) enum Endpoint {
    Tcp(u16),
    Unix(PathBuf),
}

/// A server without persistence in a directory of its own. It may be stopped and started again on the same address;
/// dropping it kills it and removes the directory.
#[derive(Debug)]
pub struct Server {
    binary: PathBuf,
    args: Vec<String>,
    endpoint: Endpoint,
    child: Option<Child>,
    // Last, so that the directory goes after the server that writes into it.
    dir: TempDir,
}

impl Server {
    /// A server that is to listen on a free loopback port, with `args` after the usual ones, so that they win.
    pub fn on_port(binary: PathBuf, args: &[&str]) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("maitred-").tempdir()?;
        Ok(Self::new(binary, args, Endpoint::Tcp(free_port()?), dir))
    }

    /// A server that is to listen on a Unix socket only: it takes no port from anybody.
    pub fn on_socket(binary: PathBuf) -> io::Result<Self> {
        let mut dir = tempfile::Builder::new().prefix("maitred-").tempdir()?;
        if dir.path().as_os_str().len() + 1 + SOCKET.len() > SOCKET_PATH_MAX {
            dir = tempfile::Builder::new().prefix("maitred-").tempdir_in("/tmp")?;
        }
        let socket = dir.path().join(SOCKET);
        Ok(Self::new(binary, &[], Endpoint::Unix(socket), dir))
    }

    fn new(binary: PathBuf, args: &[&str], endpoint: Endpoint, dir: TempDir) -> Self {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Self { binary, args, endpoint, child: None, dir }
    }

    /// The URL for clients, without any parameter.
    pub fn url(&self) -> String {
        match &self.endpoint {
            Endpoint::Tcp(port) => format!("redis://127.0.0.1:{port}"),
            Endpoint::Unix(socket) => format!("unix://{}", socket.display()),
        }
    }

    /// The process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The directory that the server works in: `dump.rdb`, `appendonlydir`.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// What the server has printed since its last start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Starts the server and waits until it answers, at most 20 s.
    pub fn start(&mut self) -> Result<(), String> {
        self.spawn()?;
        let end = Instant::now() + START_LIMIT;
        while !self.is_ready(end)? {
            thread::sleep(POLL_EVERY);
        }
        Ok(())
    }

    /// As [`start`](Self::start), in a task. Dropping the future leaves a server that goes with this handle.
    pub async fn start_in_task(&mut self) -> Result<(), String> {
        self.spawn()?;
        let end = Instant::now() + START_LIMIT;
        while !self.is_ready(end)? {
            tokio::time::sleep(POLL_EVERY).await;
        }
        Ok(())
    }

    /// Kills the server and waits until it is gone. Fine where it does not run.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            signal::end(&mut child);
        }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn child(&self) -> Option<&Child> {
        self.child.as_ref()
    }

    pub(crate) fn child_mut(&mut self) -> &mut Option<Child> {
        &mut self.child
    }

    /// One inline command on a connection of its own, answered in raw RESP.
    pub(crate) fn ask(&self, line: &str) -> io::Result<String> {
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

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("server.log")
    }

    fn spawn(&mut self) -> Result<(), String> {
        let spawned = self.command().and_then(|mut command| command.spawn());
        self.child = Some(spawned.map_err(|error| format!("could not start {}: {error}", self.binary.display()))?);
        Ok(())
    }

    /// Whether it answers by now; an error, with what it printed, where it has ended or the time is over.
    fn is_ready(&mut self, end: Instant) -> Result<bool, String> {
        let Some(child) = &mut self.child else { return Err("the server was not started".to_owned()) };
        let (pid, ended) = (child.id(), child.try_wait().ok().flatten());
        let refused = match ended {
            Some(status) => format!("ended at its start ({status})"),
            None if self.answers(pid) => return Ok(true),
            None if Instant::now() < end => return Ok(false),
            None => format!("did not answer PING within {START_LIMIT:?}"),
        };
        self.kill();
        Err(format!("{} {refused}; it said:\n{}", self.binary.display(), self.log().trim_end()))
    }

    /// Whether the server answers, and is the child and not a stranger that was quicker to take the port.
    fn answers(&self, pid: u32) -> bool {
        match self.ask("PING") {
            Ok(answer) if answer.starts_with("+PONG") => {
                matches!(self.endpoint, Endpoint::Unix(_))
                    || self
                        .ask("INFO server")
                        .is_ok_and(|info| info.lines().any(|line| line.trim_end() == format!("process_id:{pid}")))
            }
            // A server that wants a password is up, and says nothing about itself.
            Ok(answer) => answer.starts_with("-NOAUTH"),
            Err(_) => false,
        }
    }

    fn command(&self) -> io::Result<Command> {
        fs::create_dir_all(self.data_dir())?;
        let log = File::create(self.log_path())?;
        let mut command = Command::new(&self.binary);
        if is_dragonfly(&self.binary) {
            self.dragonfly_args(&mut command);
        } else {
            match &self.endpoint {
                Endpoint::Tcp(port) => command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]),
                Endpoint::Unix(socket) => command.args(["--port", "0", "--unixsocket"]).arg(socket),
            };
            command.arg("--dir").arg(self.data_dir());
            command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]);
        }
        command.args(&self.args).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    fn dragonfly_args(&self, command: &mut Command) {
        match &self.endpoint {
            Endpoint::Tcp(port) => command.arg(format!("--port={port}")).arg("--bind=127.0.0.1"),
            Endpoint::Unix(socket) => command.arg("--port=0").arg(format!("--unixsocket={}", socket.display())),
        };
        command.args(["--dbfilename=", "--logtostderr", "--proactor_threads=2", "--cluster_mode=emulated"]);
        command.arg(format!("--dir={}", self.data_dir().display()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn is_dragonfly(binary: &Path) -> bool {
    binary.file_name().is_some_and(|name| name.to_string_lossy().contains("dragonfly"))
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

fn free_port() -> io::Result<u16> {
    for _ in 0..1_000 {
        let port = rand::random_range(PORTS);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::other(format!("no free loopback port in {PORTS:?}")))
}
