use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;
use sha1::{Digest, Sha1};

use super::super::Failure;
use super::super::context::Context;
use super::super::view;

/// What became of the pins.
#[derive(Debug, Default, Serialize)]
struct Pins {
    ok: bool,
    added: Vec<String>,
    changed: Vec<String>,
    removed: Vec<String>,
    unchanged: usize,
}

/// Puts the parts into the scripts under `root`, pins what is then in `lua/`, and removes pins whose script is gone.
pub(super) fn run(context: &Context, root: &Path) -> Result<(), Failure> {
    put_parts(root)?;
    let scripts = files(root, "lua", "lua")?;
    if scripts.is_empty() {
        return Err(Failure::Usage(format!(
            "there is no lua/<system>/<verb>.lua under {}; --root names the root of the repository",
            root.display()
        )));
    }
    let mut pins = Pins { ok: true, ..Pins::default() };
    // All are read and checked before the first is written.
    let mut wanted = Vec::new();
    for (system, file) in &scripts {
        let bytes = read(&root.join("lua").join(system).join(file))?.unwrap_or_default();
        if bytes.contains(&b'\r') {
            return Err(Failure::Usage(format!("lua/{system}/{file} has CR line ends; pins are over LF only")));
        }
        let text = format!("{}  lua/{system}/{file}\n", hex::encode(Sha1::digest(&bytes)));
        wanted.push((system, format!("{file}.sha1"), text));
    }
    for (system, file, text) in &wanted {
        let shown = format!("sha1/{system}/{file}");
        let folder = root.join("sha1").join(system);
        match read(&folder.join(file))? {
            Some(old) if old == text.as_bytes() => {
                pins.unchanged += 1;
                continue;
            }
            Some(_) => pins.changed.push(shown.clone()),
            None => pins.added.push(shown.clone()),
        }
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(folder.join(file), text))
            .map_err(|error| Failure::io(&format!("writing {shown}"), &error))?;
    }
    for (system, file) in files(root, "sha1", "sha1")? {
        if !wanted.iter().any(|(other, name, _)| **other == system && *name == file) {
            let shown = format!("sha1/{system}/{file}");
            fs::remove_file(root.join("sha1").join(&system).join(&file))
                .map_err(|error| Failure::io(&format!("removing {shown}"), &error))?;
            pins.removed.push(shown);
        }
    }
    if context.json {
        view::json(&pins);
    } else {
        pins.print();
    }
    Ok(())
}

/// Puts the parts into the scripts that name them, by the repository's own command, where there is one.
fn put_parts(root: &Path) -> Result<(), Failure> {
    if !root.join(".ci/parts").is_file() {
        return Ok(());
    }
    let status = Command::new("sh").args([".ci/parts", "write"]).current_dir(root).stdout(Stdio::null()).status();
    match status.map_err(|error| Failure::io("running .ci/parts", &error))? {
        status if status.success() => Ok(()),
        _ => Err(Failure::Usage("a script names a part that is not there or does not close it".to_owned())),
    }
}

/// `<top>/<system>/<file>` with that extension under `root`, sorted. None where `top` is not there. `parts/` is no system:
/// what lies there stands inside the scripts that name it.
fn files(root: &Path, top: &str, extension: &str) -> Result<BTreeSet<(String, String)>, Failure> {
    let mut found = BTreeSet::new();
    for system in folder(&root.join(top))? {
        if !system.is_dir() || system.ends_with("parts") {
            continue;
        }
        for file in folder(&system)? {
            if file.extension() == Some(OsStr::new(extension)) && file.is_file() {
                found.insert((name(&system)?, name(&file)?));
            }
        }
    }
    Ok(found)
}

fn folder(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: std::io::Error| Failure::io(&format!("reading {}", path.display()), &error);
    match fs::read_dir(path) {
        Ok(entries) => entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
    }
}

fn name(path: &Path) -> Result<String, Failure> {
    let name = path.file_name().and_then(OsStr::to_str).filter(|name| !name.contains(['\\', '\n']));
    name.map(str::to_owned).ok_or_else(|| Failure::Usage(format!("{} is no name for a script", path.display())))
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::io(&format!("reading {}", path.display()), &error)),
    }
}

impl Pins {
    fn print(&self) {
        for (what, paths) in [("added", &self.added), ("changed", &self.changed), ("removed", &self.removed)] {
            for path in paths {
                view::line(&format!("{what} {path}"));
            }
        }
        let touched = self.added.len() + self.changed.len() + self.removed.len();
        let then = if touched > 0 { "; build again to take them in" } else { "" };
        view::line(&format!(
            "{} written or removed, {} as they were{then}",
            view::counted(touched, "pin"),
            self.unchanged
        ));
    }
}
