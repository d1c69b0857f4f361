//! A store for one run of a command: a server found on this machine, on a Unix socket in a directory of its own,
//! without persistence, ended when it is dropped.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use super::Failure;

/// The environment variable that names the server's binary; without it the first of [`SERVERS`] on PATH is taken.
const SERVER_VARIABLE: &str = "MAITRED_SERVER";
/// Servers that will do, best first.
const SERVERS: [&str; 4] = ["redis-server", "valkey-server", "keydb-server", "dragonfly"];
/// Longest time until the server answers.
const START_MAX: Duration = Duration::from_secs(15);
/// Longest time that the server may take to end before it is killed.
const STOP_MAX: Duration = Duration::from_secs(2);
/// Between two looks at a server that starts or ends.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Longest path of a Unix socket that every system takes, in bytes.
const SOCKET_PATH_MAX: usize = 100;
/// Name of the socket in the store's directory.
const SOCKET: &str = "store.sock";

/// A running private server. A socket in a directory that nobody else has takes no port from anybody, so no start fails
/// because another program was quicker.
#[derive(Debug)]
pub(super) struct PrivateStore {
    child: Child,
    socket: PathBuf,
    // Last, so that the directory goes after the server that writes into it.
    _dir: TempDir,
}

impl PrivateStore {
    /// Finds a server, starts it and waits until it answers, at most 15 s. Dropping the future ends the server.
    pub async fn start() -> Result<Self, Failure> {
        let binary = find(std::env::var_os(SERVER_VARIABLE).as_deref(), std::env::var_os("PATH").as_deref())?;
        let dir = directory().map_err(|error| Failure::io("making a directory for the store", &error))?;
        let socket = dir.path().join(SOCKET);
        let log = dir.path().join("server.log");
        let child = command(&binary, dir.path(), &socket, &log)
            .and_then(|mut command| command.spawn())
            .map_err(|error| Failure::io(&format!("starting {}", binary.display()), &error))?;
        let mut store = Self { child, socket, _dir: dir };
        store.ready(&binary, &log).await?;
        Ok(store)
    }

    /// Its URL. What kind of server it is says [`server_info`](crate::store::Store::server_info).
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    async fn ready(&mut self, binary: &Path, log: &Path) -> Result<(), Failure> {
        let refuse = |what: String| {
            let said = fs::read_to_string(log).unwrap_or_default();
            Failure::Io(format!("{} {what}; it said:\n{}", binary.display(), said.trim_end()))
        };
        let end = Instant::now() + START_MAX;
        while Instant::now() < end {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(refuse(format!("ended at its start ({status})")));
            }
            if timeout(Duration::from_secs(1), answers(&self.socket)).await.is_ok_and(|answer| answer.is_ok()) {
                return Ok(());
            }
            sleep(LOOK_EVERY).await;
        }
        Err(refuse(format!("did not answer within {} s", START_MAX.as_secs())))
    }

    /// True once the server has ended by itself or by SIGTERM.
    fn ended_politely(&mut self) -> bool {
        let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else { return false };
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return true;
        }
        if kill_process(pid, Signal::TERM).is_err() {
            return false;
        }
        let end = std::time::Instant::now() + STOP_MAX;
        while std::time::Instant::now() < end {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return true;
            }
            thread::sleep(LOOK_EVERY);
        }
        false
    }
}

impl Drop for PrivateStore {
    fn drop(&mut self) {
        if !self.ended_politely() {
            // Both fail only where it has ended meanwhile.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn find(named: Option<&OsStr>, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        return if named.is_file() {
            Ok(named)
        } else {
            Err(Failure::Io(format!("{SERVER_VARIABLE} names {}, which is no file", named.display())))
        };
    }
    let folders: Vec<PathBuf> = path.map(|path| std::env::split_paths(path).collect()).unwrap_or_default();
    SERVERS
        .iter()
        .flat_map(|server| folders.iter().map(move |folder| folder.join(server)))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| {
            Failure::Io(format!(
                "no server for a private store: PATH has no {}; install one of them, set {SERVER_VARIABLE} to the path \
                 of one, or run `make demo`, which gets one",
                SERVERS.join(", no ")
            ))
        })
}

fn directory() -> io::Result<TempDir> {
    let dir = tempfile::Builder::new().prefix("maitred-").tempdir()?;
    if dir.path().as_os_str().len() + 1 + SOCKET.len() <= SOCKET_PATH_MAX {
        return Ok(dir);
    }
    tempfile::Builder::new().prefix("maitred-").tempdir_in("/tmp")
}

fn command(binary: &Path, dir: &Path, socket: &Path, log: &Path) -> io::Result<Command> {
    let log = File::create(log)?;
    let mut command = Command::new(binary);
    if binary.file_name().is_some_and(|name| name.to_string_lossy().contains("dragonfly")) {
        command.args(["--port=0", "--dbfilename=", "--logtostderr", "--proactor_threads=2"]);
        command.arg("--cluster_mode=emulated");
        command.arg(format!("--dir={}", dir.display())).arg(format!("--unixsocket={}", socket.display()));
    } else {
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no"]);
        command.arg("--dir").arg(dir).arg("--unixsocket").arg(socket);
    }
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(command)
}

async fn answers(socket: &Path) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(b"PING\r\n").await?;
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).await?;
    if answer == *b"+PONG\r\n" { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    // CLI-2: without a server people are told what to install, not left with a failing connection.
    #[test]
    fn cli_2_a_missing_server_is_named() {
        let Err(Failure::Io(text)) = find(None, Some(OsStr::new("/nowhere"))) else { panic!("found a server") };
        assert!(SERVERS.iter().all(|server| text.contains(server)), "{text}");
        assert!(text.contains("make demo") && text.contains(SERVER_VARIABLE), "{text}");
        let Err(Failure::Io(text)) = find(Some(OsStr::new("/nowhere/redis")), None) else { panic!("found a server") };
        assert!(text.contains("/nowhere/redis"), "{text}");
    }

    // CLI-2: a store that outlives its command leaves people with servers they never asked for.
    #[tokio::test]
    async fn cli_2_a_private_store_answers_and_is_gone_after_its_drop() {
        let Ok(store) = PrivateStore::start().await else { panic!("this test needs one of {SERVERS:?} on PATH") };
        let (socket, pid) = (store.socket.clone(), store.child.id());
        answers(&socket).await.expect("PING is answered");
        drop(store);
        assert!(UnixStream::connect(&socket).await.is_err() && !socket.exists(), "nobody listens any more");
        let pid = Pid::from_raw(i32::try_from(pid).expect("a process id")).expect("a process id");
        assert!(rustix::process::test_kill_process(pid).is_err(), "the process is gone");
    }
}
