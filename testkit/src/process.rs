//! A process that speaks in lines on stdin and stdout, and what a `maitred node` is started with.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc as blocking;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::sync::mpsc;

use crate::{program, signal};

/// What is set for a fleet of the operator's, and must not reach into one that was started here.
const OPERATORS_VARIABLES: [&str; 4] = ["MAITRED_STORE", "MAITRED_ZONE", "MAITRED_NODE_ID", "MAITRED_SECRET_ALSO"];

/// What a node process is started with.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// The binary.
    pub program: PathBuf,
    /// `--id`
    pub id: String,
    /// `--role`: `backend`, `proxy` or another one.
    pub role: String,
    /// `--addr`: what it tells others to send players to; nothing listens there.
    pub addr: String,
    /// `--store`
    pub store: String,
    /// `--zone`
    pub zone: String,
    /// `--config`
    pub config: Option<PathBuf>,
    /// Environment on top of the caller's own, such as the secret: arguments can be listed by other users.
    pub env: Vec<(String, String)>,
    /// Arguments after those above.
    pub args: Vec<String>,
}

impl NodeOptions {
    /// A node of the binary that tests use, with an address that nobody uses, and no config.
    pub fn new(id: &str, role: &str, store: &str, zone: &str) -> Self {
        Self::of(program::maitred().to_owned(), id, role, store, zone)
    }

    /// As [`new`](Self::new), for a binary of the caller's.
    pub fn of(program: PathBuf, id: &str, role: &str, store: &str, zone: &str) -> Self {
        Self {
            program,
            id: id.to_owned(),
            role: role.to_owned(),
            addr: "127.0.0.1:25565".to_owned(),
            store: store.to_owned(),
            zone: zone.to_owned(),
            config: None,
            env: Vec::new(),
            args: Vec::new(),
        }
    }

    /// Sets an environment variable of the process.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// What starts it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["node", "--id", &self.id, "--role", &self.role, "--addr", &self.addr]);
        command.args(["--store", &self.store, "--zone", &self.zone]);
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        for name in OPERATORS_VARIABLES {
            command.env_remove(name);
        }
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// A running process; dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    // A thread writes, so that a stopped process with a full pipe does not stop the caller with it.
    input: Option<blocking::Sender<String>>,
    stderr: Arc<Mutex<Vec<u8>>>,
}

impl Process {
    /// Starts it. What it writes to stdout comes line by line; the lines end with the process.
    pub fn spawn(name: &str, mut command: Command) -> io::Result<(Self, mpsc::UnboundedReceiver<String>)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (Some(stdin), Some(stdout), Some(mut errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            signal::end(&mut child);
            return Err(io::Error::other("its pipes are missing"));
        };

        let (input, to_write) = blocking::channel();
        thread::spawn(move || write_lines(stdin, &to_write));
        let (line_in, lines) = mpsc::unbounded_channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line_in.send(line).is_err() {
                    return;
                }
            }
        });
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&stderr);
        thread::spawn(move || {
            let mut chunk = [0; 4_096];
            while let Ok(read @ 1..) = errors.read(&mut chunk) {
                kept.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&chunk[..read]);
            }
        });
        Ok((Self { name: name.to_owned(), child, input: Some(input), stderr }, lines))
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes one line, without waiting for the process to read it. False where its stdin is closed.
    pub fn send_line(&self, line: &str) -> bool {
        self.input.as_ref().is_some_and(|input| input.send(format!("{line}\n")).is_ok())
    }

    /// Closes its stdin once all that was sent is written.
    pub fn close_stdin(&mut self) {
        self.input = None;
    }

    /// Whether the process still runs; a frozen one does.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends the process with SIGKILL and waits until it is gone. False where it had ended before.
    pub fn kill(&mut self) -> bool {
        let runs = self.is_running();
        signal::end(&mut self.child);
        runs
    }

    /// What the process has written to its stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr_tail(usize::MAX)
    }

    /// The last `bytes` of what it has written to its stderr.
    pub fn stderr_tail(&self, bytes: usize) -> String {
        let stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&stderr[stderr.len().saturating_sub(bytes)..]).into_owned()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        signal::end(&mut self.child);
    }
}

fn write_lines(mut stdin: ChildStdin, lines: &blocking::Receiver<String>) {
    while let Ok(line) = lines.recv() {
        if stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).is_err() {
            return;
        }
    }
}
