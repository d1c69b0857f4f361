//! A store for one run of a command: a server found on this machine, on a Unix socket, gone with its handle.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::server::{Missing, Server, find};

/// The environment variable that names the server's binary; without it the first of [`SERVERS`] on PATH is taken.
pub const SERVER_VARIABLE: &str = "MAITRED_SERVER";
/// Servers that will do, best first.
pub const SERVERS: [&str; 4] = ["redis-server", "valkey-server", "keydb-server", "dragonfly"];

/// A running private server. A socket in a directory that nobody else has takes no port from anybody, so no start fails
/// because another program was quicker.
#[derive(Debug)]
pub struct PrivateStore {
    server: Server,
}

impl PrivateStore {
    /// Finds a server, starts it and waits until it answers. Dropping the future ends the server. The error is a sentence
    /// for whoever called the command.
    pub async fn start() -> Result<Self, String> {
        let binary = binary(std::env::var_os(SERVER_VARIABLE).as_deref(), std::env::var_os("PATH").as_deref())?;
        let mut server =
            Server::on_socket(binary).map_err(|error| format!("making a directory for the store: {error}"))?;
        server.start_in_task().await?;
        Ok(Self { server })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The process id of the server.
    pub fn pid(&self) -> Option<u32> {
        self.server.pid()
    }
}

/// The server to start, by the value of [`SERVER_VARIABLE`] and of PATH.
pub fn binary(named: Option<&OsStr>, path: Option<&OsStr>) -> Result<PathBuf, String> {
    find(&SERVERS, named, path).map_err(|missing| match missing {
        Missing::NoFile(named) => format!("{SERVER_VARIABLE} names {}, which is no file", named.display()),
        Missing::NotOnPath => format!(
            "no server for a private store: PATH has no {}; install one of them, set {SERVER_VARIABLE} to the path of \
             one, or run `make demo`, which gets one",
            SERVERS.join(", no ")
        ),
    })
}
