use std::collections::BTreeSet;

use serde::Serialize;

use maitred::agent::config::Config;
use maitred::error::{Error, Result, StoreRefusal};
use maitred::ids::{LineName, NodeId};
use maitred::node::{CONFIG, Control};
use maitred::queue::{Line, LineOptions, lines};
use maitred::store::{Key, Store, Verifier};

use super::super::Failure;
use super::super::context::Context;
use super::super::view;

/// Most gates, and most keys of the store that are walked for them.
const GATES_MAX: usize = 1_000;
const KEYS_MAX: usize = 1_000_000;

/// True for what is wrong with one line's own keys, and says nothing of the other lines.
pub(crate) fn is_of_one_line(error: &Error) -> bool {
    matches!(error, Error::Refused { refusal: StoreRefusal::WrongType, .. } | Error::Protocol { .. })
}

/// What serves a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A gate and admitters.
    Login,
    /// The inventories of backends.
    Wait,
}

impl Kind {
    /// `wait` and `wait.<server>` are the wait lines; nobody can configure those names as login lines.
    pub fn of(name: &LineName) -> Self {
        let rest = name.as_str().strip_prefix("wait");
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) { Self::Wait } else { Self::Login }
    }
}

/// The lines of a zone: the store, and what the config says of them.
#[derive(Debug, Clone)]
pub(crate) struct ZoneLines {
    pub store: Store,
    pub verifier: Verifier,
    pub control: Control,
    config: Config,
    /// A config was named: what it does not name is configured nowhere.
    has_file: bool,
}

impl ZoneLines {
    /// The store, connected, with the control entries read, for a command that changes something.
    pub async fn open(context: &Context) -> Result<Self> {
        Self::of(context, context.fleet().await?).await
    }

    /// [`open`](Self::open) for a command that only looks.
    pub async fn open_to_read(context: &Context) -> Result<Self> {
        Self::of(context, context.fleet_to_read().await?).await
    }

    async fn of(context: &Context, (store, verifier): (Store, Verifier)) -> Result<Self> {
        let control = Control::default();
        control.refresh(&store, &verifier).await?;
        Ok(Self::over(context, &store, &verifier, &control))
    }

    /// The lines of a store that is connected. A config that was pushed goes before the file, as it does on nodes.
    pub fn over(context: &Context, store: &Store, verifier: &Verifier, control: &Control) -> Self {
        let pushed = control.entry(CONFIG).filter(|entry| !entry.value.is_empty());
        let config = match pushed.map(|entry| context.config.with_push(&entry.value)) {
            Some(Ok(config)) => config,
            Some(Err(error)) => {
                view::note(&format!("the pushed config does not fit over the file, which is used alone: {error}"));
                context.config.clone()
            }
            None => context.config.clone(),
        };
        let has_file = context.globals.config.is_some();
        Self { store: store.clone(), verifier: verifier.clone(), control: control.clone(), config, has_file }
    }

    /// True where the config names the line.
    pub fn is_configured(&self, name: &LineName) -> bool {
        self.config.lines.contains_key(name)
    }

    /// The line with the options of the config, or with the defaults where it is not there. Of a login line that no named
    /// config knows the gate goes with its last ticket; without a config nobody knows, so it stays.
    pub fn line(&self, name: &LineName) -> Result<Line> {
        let options = match (self.config.lines.get(name), Kind::of(name)) {
            (Some(line), _) => line.options(name),
            (None, Kind::Wait) => LineOptions {
                reconnect_grace_ms: self.config.wait.reconnect_grace_ms,
                ..LineOptions::wait_line(name.clone())
            },
            (None, Kind::Login) => LineOptions { configured: !self.has_file, ..LineOptions::new(name.clone()) },
        };
        Line::new(self.store.clone(), self.verifier.clone(), self.control.clone(), options)
    }

    /// The lines that hold tickets, those of the config, and those that are paused, by name.
    pub async fn names(&self) -> Result<Vec<LineName>> {
        let mut names: BTreeSet<LineName> = lines(&self.store).await?.into_iter().collect();
        names.extend(self.config.lines.keys().cloned());
        names.extend(self.paused().await?);
        Ok(names.into_iter().collect())
    }

    /// Lines whose gate says that an operator paused them: one that nobody waits in and no config knows is on no list.
    async fn paused(&self) -> Result<Vec<LineName>> {
        let gates = match self.store.names_part("gate:", GATES_MAX, KEYS_MAX).await {
            Ok((gates, _)) => gates,
            // Without the right to walk the keys what is on the lists is shown.
            Err(Error::Refused { refusal: StoreRefusal::Denied, .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let names: Vec<LineName> = gates.iter().filter_map(|name| LineName::new(name).ok()).collect();
        let keys: Vec<Key<'_>> = names.iter().map(|name| self.store.keys().gate(name)).collect();
        let rows = self.store.fields(&keys, &["paused"]).await?;
        let paused = names.iter().zip(rows).filter(|(_, row)| row.get("paused") == Some("1"));
        Ok(paused.map(|(name, _)| name.clone()).collect())
    }

    /// A word on stderr about lines that are looked at with the defaults.
    pub fn say_defaults(&self, names: &[LineName]) {
        let unknown: Vec<&str> = names
            .iter()
            .filter(|name| Kind::of(name) == Kind::Login && !self.is_configured(name))
            .map(LineName::as_str)
            .collect();
        if unknown.is_empty() {
            return;
        }
        let where_to = if self.has_file { "the config does not name it" } else { "--config names the fleet's file" };
        view::note(&format!("{}: lanes and rate are the defaults, {where_to}", unknown.join(" ")));
    }

    /// Ends the command for a line of which neither the config nor the store knows anything: a name that was mistyped must
    /// not look as if it had been obeyed. Every zone has the wait line `wait`, and every node on duty one of its own.
    pub async fn must_know(&self, name: &LineName) -> Result<(), Failure> {
        let keys = self.store.keys();
        let known = self.is_configured(name)
            || *name == LineName::wait()
            || lines(&self.store).await?.contains(name)
            || !self.store.row(keys.gate(name)).await?.is_empty();
        if known {
            return Ok(());
        }
        if let (Kind::Wait, Some(server)) = (Kind::of(name), name.as_str().strip_prefix("wait.")) {
            let server = NodeId::new(server)?;
            if self.store.row(keys.node(&server)).await?.is_empty() {
                return Err(Failure::Io(format!(
                    "there is no line {name}: it holds no tickets, and {server} is not on duty"
                )));
            }
            return Ok(());
        }
        let configured: Vec<&str> = self.config.lines.keys().map(LineName::as_str).collect();
        let configured = if configured.is_empty() {
            "the config names none (--config)".to_owned()
        } else {
            format!("the config names {}", configured.join(" "))
        };
        Err(Failure::Io(format!("there is no line {name}: it holds no tickets and has no gate, and {configured}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // QUE-9: a wait line that is taken for a login line is shown with a gate that nobody asks.
    #[test]
    fn que_9_wait_lines_go_by_their_names() {
        let kind = |name: &str| Kind::of(&LineName::new(name).expect("valid"));
        assert_eq!(["wait", "wait.b1"].map(kind), [Kind::Wait; 2]);
        assert_eq!(["login", "waiting", "wait-list"].map(kind), [Kind::Login; 3]);
    }
}
