//! From a file and the environment to a [`Config`] that was checked.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::check;
use super::model::Config;
use super::problem::{Problem, all_or_error};
use super::schema;
use super::url::SecretUrl;
use super::walk;
use super::walked::Walked;
use super::yaml::{self, Node, Value};
use crate::error::{Error, Result};
use crate::ids::NodeId;

/// Largest config file, in bytes.
pub const FILE_MAX_BYTES: u64 = 262_144;
/// The variable that gives the node id.
pub const ENV_NODE_ID: &str = "MAITRED_NODE_ID";
/// The variable that gives the address that players are sent to.
pub const ENV_NODE_ADDR: &str = "MAITRED_NODE_ADDR";
/// The variable that gives the store URL.
pub const ENV_STORE: &str = "MAITRED_STORE";
/// The variable that gives the zone.
pub const ENV_ZONE: &str = "MAITRED_ZONE";

/// What a file says of `enabled`. A file that is being written is empty for a moment, and an empty file reads as switched
/// off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum Stated {
    /// The file gives no key at all.
    Empty,
    /// It gives keys, and `enabled` is not among them.
    NotEnabled,
    /// It gives `enabled`.
    Enabled,
}

/// Reads the text of one variable into the config; false where it does not fit.
type Setter = fn(&mut Config, &str) -> bool;

impl Config {
    /// Reads a config from the text of a `network.yml`. Keys that are not given have their default, so an empty text is
    /// [`Config::default`].
    ///
    /// # Errors
    /// [`Error::Config`] with every problem of the text, in its order. No text value is repeated in it.
    pub fn from_yaml(text: &str) -> Result<Self> {
        Self::stated(text).map(|(config, _)| config)
    }

    fn stated(text: &str) -> Result<(Self, Stated)> {
        if is_too_long(text.len()) {
            return Err(too_long().into());
        }
        let tree = yaml::parse(text)?;
        let mut walked = walk::walk(&tree);
        check::check(&mut walked);
        all_or_error(walked.problems)?;
        Ok((walked.config, Stated::of(&tree)))
    }

    /// Reads a config from a file. Blocks while it reads.
    ///
    /// # Errors
    /// [`Error::Config`] as from [`Config::from_yaml`], and where the file cannot be read, is longer than
    /// [`FILE_MAX_BYTES`], or is not UTF-8. Each line starts with the file.
    pub fn load(path: &Path) -> Result<Self> {
        Self::load_stated(path).map(|(config, _)| config)
    }

    /// Like [`Config::load`], with what the file says of `enabled`.
    #[doc(hidden)]
    pub fn load_stated(path: &Path) -> Result<(Self, Stated)> {
        read(path).and_then(|text| Self::stated(&text)).map_err(|error| match error {
            Error::Config { problems } => {
                Error::Config { problems: problems.iter().map(|line| format!("{}: {line}", path.display())).collect() }
            }
            other => other,
        })
    }

    /// Takes node id, store URL and zone from the environment where `lookup` has them: [`ENV_NODE_ID`], [`ENV_STORE`],
    /// [`ENV_ZONE`]. An empty variable counts as not set.
    ///
    /// # Errors
    /// [`Error::Config`] with a line for each variable that does not fit, starting with its name and without its value.
    /// Then nothing was taken.
    pub fn apply_env(&mut self, lookup: impl Fn(&str) -> Option<String>) -> Result<()> {
        let variables: [(&str, &str, Setter); 4] = [
            (ENV_NODE_ID, "node.id", schema::set_node_id),
            (ENV_NODE_ADDR, "node.addr", schema::set_node_addr),
            (ENV_STORE, "store.url", schema::set_store_url),
            (ENV_ZONE, "zone", schema::set_zone),
        ];
        let mut config = self.clone();
        let mut problems = Vec::new();
        for (variable, path, set) in variables {
            let Some(text) = lookup(variable).filter(|text| !text.is_empty()) else { continue };
            if !set(&mut config, &text) {
                problems.push(Problem {
                    path: variable.to_owned(),
                    place: None,
                    what: format!("does not fit {path}"),
                    allowed: schema::find(path).map(schema::Key::allowed).unwrap_or_default(),
                });
            }
        }
        all_or_error(problems)?;
        *self = config;
        Ok(())
    }

    /// Checks what has to be there before the library can be enabled: a node id, a store URL, and all values in bounds
    /// (code may have set fields). Ok where `enabled` is false: then nothing is needed (POL-2).
    ///
    /// # Errors
    /// [`Error::Config`] with every problem.
    pub fn check_enabled(&self) -> Result<()> {
        if !self.enabled {
            return Ok(());
        }
        let mut walked = Walked { config: self.clone(), ..Walked::default() };
        check::check(&mut walked);
        let missing = [self.node.id.is_none().then(no_node_id), self.store.url.is_none().then(no_store_url)];
        walked.problems.extend(missing.into_iter().flatten());
        all_or_error(walked.problems)
    }

    /// The node id, which an enabled config has.
    ///
    /// # Errors
    /// [`Error::Config`] where neither file nor environment gave one.
    pub fn node_id(&self) -> Result<&NodeId> {
        self.node.id.as_ref().ok_or_else(|| no_node_id().into())
    }

    /// The store URL, which an enabled config has.
    ///
    /// # Errors
    /// [`Error::Config`] where neither file nor environment gave one.
    pub fn store_url(&self) -> Result<&SecretUrl> {
        self.store.url.as_ref().ok_or_else(|| no_store_url().into())
    }

    /// How long a beat keeps this node a member, in ms: 3.5 beat intervals, so two lost beats are survived.
    pub fn lease_ms(&self) -> u64 {
        self.heartbeat.interval_ms.saturating_mul(7) / 2
    }

    /// The commented default file that `maitred config init` writes. It reads as [`Config::default`].
    pub fn default_yaml() -> &'static str {
        include_str!("network.yml")
    }

    /// Every key of the file as path and allowed values, in the order of the default file.
    pub fn keys() -> impl Iterator<Item = (&'static str, String)> {
        schema::KEYS.iter().map(|key| (key.path, key.allowed()))
    }
}

impl Stated {
    fn of(tree: &Node) -> Self {
        match &tree.value {
            Value::Map(entries) if !entries.is_empty() => {
                let gives = |key: &Node| matches!(&key.value, Value::Text(name) if name == "enabled");
                if entries.iter().any(|(key, _)| gives(key)) { Self::Enabled } else { Self::NotEnabled }
            }
            _ => Self::Empty,
        }
    }
}

fn read(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let taken = File::open(path).and_then(|file| file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes));
    if let Err(error) = taken {
        return Err(whole_file(format!("cannot be read: {error}"), "a readable file").into());
    }
    if is_too_long(bytes.len()) {
        return Err(too_long().into());
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = error.as_bytes().iter().take(good).filter(|byte| **byte == b'\n').count() + 1;
        whole_file(format!("is not UTF-8 in line {line}"), "UTF-8 text").into()
    })
}

fn is_too_long(bytes: usize) -> bool {
    u64::try_from(bytes).map_or(true, |bytes| bytes > FILE_MAX_BYTES)
}

fn whole_file(what: impl Into<String>, allowed: impl Into<String>) -> Problem {
    Problem { path: "(file)".to_owned(), place: None, what: what.into(), allowed: allowed.into() }
}

fn too_long() -> Problem {
    whole_file("is too long", format!("at most {FILE_MAX_BYTES} bytes"))
}

fn no_node_id() -> Problem {
    missing("node.id", ENV_NODE_ID)
}

fn no_store_url() -> Problem {
    missing("store.url", ENV_STORE)
}

fn missing(path: &'static str, variable: &'static str) -> Problem {
    Problem {
        path: path.to_owned(),
        place: None,
        what: format!("is needed where maitred is enabled; give it here or in {variable}"),
        allowed: schema::find(path).map(schema::Key::allowed).unwrap_or_default(),
    }
}
