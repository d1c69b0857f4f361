//! The example proxy as a process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::fixtures::agents::SECRET;
use maitred_testkit::fleet::Node;

pub const LIMIT: Duration = Duration::from_secs(60);

/// A running edge proxy.
pub struct Edge {
    pub node: Node,
    pub addr: SocketAddr,
}

impl Edge {
    /// Starts one on a free port, in the zone of the tests.
    pub async fn start(id: &str, store: &str, config: &Path, args: &[String]) -> Self {
        let mut command = Command::new(binary());
        command.args(["--id", id, "--listen", "127.0.0.1:0", "--motd", "Good evening", "--config"]).arg(config);
        command.args(args).env("MAITRED_SECRET", SECRET).env("MAITRED_STORE", store).env("MAITRED_ZONE", "eu");
        let mut node = Node::from_command(id, command);
        let line = node.wait_for(|line| line["event"] == "listening", LIMIT).await;
        let addr = line["addr"].as_str().and_then(|addr| addr.parse().ok()).expect("an address");
        Self { node, addr }
    }
}

/// The example's binary. A run of the whole suite builds it; a run of this test alone may have none, or an old one.
fn binary() -> PathBuf {
    let own = std::env::current_exe().expect("a path");
    let profile = own.parent().and_then(Path::parent).expect("target/<profile>/deps");
    let binary = profile.join("examples").join("minecraft_proxy");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let newest = newest(&root.join("src")).max(newest(&root.join("examples/minecraft_proxy")));
    if changed(&binary) < newest {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
        let mut build = Command::new(cargo);
        build
            .args(["build", "--quiet", "--workspace", "--bin", "maitred", "--example", "minecraft_proxy"])
            .current_dir(root);
        assert!(build.status().expect("cargo starts").success(), "could not build the example");
    }
    assert!(binary.is_file(), "{} is not there; cargo build --example minecraft_proxy makes it", binary.display());
    binary
}

fn changed(path: &Path) -> SystemTime {
    path.metadata().and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// When the newest file under `folder` was written.
fn newest(folder: &Path) -> SystemTime {
    let entries = std::fs::read_dir(folder).expect("a folder of sources").map(|entry| entry.expect("an entry").path());
    let times = entries.map(|path| if path.is_dir() { newest(&path) } else { changed(&path) });
    times.max().unwrap_or(SystemTime::UNIX_EPOCH)
}
