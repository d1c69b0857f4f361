//! The `maitred` binary for tests of packages that Cargo does not tell where it is.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// Names a binary that is built already; without it, it is built.
pub const PROGRAM_VARIABLE: &str = "MAITRED_BIN";
/// Built beside the binary. With an example in the selection Cargo chooses the features of dependencies as it does for
/// tests, so that nothing is compiled a second time for the binary alone.
const EXAMPLE: &str = "minecraft_proxy";

/// The path of the binary: the value of [`PROGRAM_VARIABLE`], else the one of this checkout, built once a process in the
/// target directory and the profile that the caller was built in. Panics, with what Cargo said, where it cannot be built.
pub fn maitred() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| match std::env::var_os(PROGRAM_VARIABLE).filter(|named| !named.is_empty()) {
        Some(named) => {
            let named = PathBuf::from(named);
            assert!(named.is_file(), "{PROGRAM_VARIABLE} names {}, which is no file", named.display());
            named
        }
        None => build().unwrap_or_else(|why| panic!("could not build the maitred binary: {why}")),
    })
}

fn build() -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    // <target>/<profile>/deps/<test>-<hash>
    let folder = this.parent().and_then(Path::parent).ok_or("this program is in no folder of Cargo's")?;
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "dev",
        Some(profile) => profile,
        None => return Err(format!("{} names no profile", folder.display())),
    };
    let target = folder.parent().ok_or("this program is in no target directory")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--workspace", "--bin", "maitred", "--example", EXAMPLE, "--profile", profile]);
    command.arg("--message-format=json-render-diagnostics").arg("--target-dir").arg(target);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).stdin(Stdio::null());
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let executable = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find_map(|message| {
        let is_it = message["target"]["name"] == "maitred" && message["target"]["kind"][0] == "bin";
        is_it.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
    });
    executable.ok_or_else(|| format!("Cargo named no executable:\n{said}"))
}
