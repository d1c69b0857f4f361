//! The `maitred` command: one file a subcommand, `view` for what people and programs read.
//!
//! Exit codes: 0 done; 1 the store, the fleet or a check said no; 2 wrong usage, config or secret.

mod bench;
mod config_cmd;
mod config_push;
mod context;
mod curves;
mod demo;
mod doctor;
mod doubt;
mod drain;
mod kill;
mod node;
mod nodes;
mod peers;
mod queues;
mod reap;
mod routes;
mod scripts;
mod span;
mod tokens;
mod view;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use context::{Context, Globals};
use maitred::error::{Class, Error};

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 the store, the fleet or a check said no; 2 wrong usage, config or secret. The secret is read from \
MAITRED_SECRET, or from the variable that the config names. MAITRED_LOG sets what is logged on stderr, NO_COLOR switches \
colours off.";

/// The coordination layer of game fleets.
#[derive(Debug, Parser)]
#[command(name = "maitred", version, about, max_term_width = 100, after_help = EXIT_CODES)]
struct Arguments {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a whole small fleet on a private store and check every promise
    Demo(demo::Options),
    /// Run one node: a reference process, and a sidecar that speaks JSON lines
    Node(node::Options),
    /// Sweep due tokens by hand
    Reap(reap::Options),
    /// Show the nodes of the zone
    Nodes(nodes::Options),
    /// Show open tokens, one player's token, or release it
    Tokens(tokens::Options),
    /// Show who owns which objects
    Routes(routes::ListOptions),
    /// Show one object's owner, version and age
    Route(routes::OneOptions),
    /// Show every line that players wait in
    Queues(queues::ListOptions),
    /// Show one line, pause, resume, empty or watch it
    Queue(queues::OneOptions),
    /// List, verify, load or pin the scripts
    Scripts(scripts::Options),
    /// Check a config file, write a commented default, push a config to every running node
    Config(config_cmd::Options),
    /// Draw every curve of the selector, and every metric of the config, as SVG
    Curves(curves::Options),
    /// Switch new reservations of the fleet, or of one node, off and on
    Kill(kill::Options),
    /// Give a node no new players, while it keeps those it has
    Drain(drain::Drain),
    /// End a node's drain
    Undrain(drain::Undrain),
    /// Look for what is wrong with the store, its rights and its data
    Doctor(doctor::Options),
    /// Measure, with the floor of the same run beside each figure
    Bench(bench::Options),
}

/// Why a command did not end well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error, told on stderr or, with `--json`, as an object on stdout.
    Error(Error),
    /// A check failed; its output says what.
    Check,
    /// The input is not valid; the output says what.
    Invalid,
    /// Wrong usage beyond what the argument parser sees.
    Usage(String),
    /// Something of this machine: a file, a process, a terminal.
    Io(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<maitred::ids::InvalidId> for Failure {
    fn from(error: maitred::ids::InvalidId) -> Self {
        Self::Error(error.into())
    }
}

impl Failure {
    /// A failure of this machine while `doing` something.
    pub(crate) fn io(doing: &str, error: &dyn std::fmt::Display) -> Self {
        Self::Io(format!("{doing}: {error}"))
    }

    /// Says what to do about the store of `context` where it did not answer. A command may have asked another one, a
    /// private store or that of another file: the error names it, and these options are no help there.
    fn at(self, context: &Context) -> Self {
        match self {
            Self::Error(ref error @ Error::Unreachable { store: Some(ref store), .. })
                if context.is_its_store(store) =>
            {
                Self::Io(format!("{error}; {}", context.store_hint()))
            }
            other => other,
        }
    }

    fn code(&self) -> u8 {
        match self {
            Self::Error(error) if matches!(error.class(), Class::Caller) => 2,
            Self::Usage(_) | Self::Invalid => 2,
            Self::Error(_) | Self::Check | Self::Io(_) => 1,
        }
    }

    fn text(&self) -> Option<String> {
        match self {
            Self::Error(error) => Some(error.to_string()),
            Self::Usage(text) | Self::Io(text) => Some(text.clone()),
            Self::Check | Self::Invalid => None,
        }
    }
}

/// Reads the command line and runs the command.
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runs_on = matches!(arguments.command, Command::Node(_));
    view::start_log(if runs_on { "info" } else { "warn" });
    let json = arguments.globals.json;
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("starting the runtime", &error))
        .and_then(|runtime| {
            let outcome = runtime.block_on(run(arguments));
            // A thread that still waits for a line on stdin must not hold the exit up.
            runtime.shutdown_background();
            outcome
        });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(text) = failure.text() {
                view::print_failure(json, &text);
            }
            ExitCode::from(failure.code())
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Failure> {
    let context = Context::new(arguments.globals)?;
    let outcome = match arguments.command {
        Command::Demo(options) => demo::run(&context, options).await,
        Command::Node(options) => node::run(&context, options).await,
        Command::Reap(options) => reap::run(&context, options).await,
        Command::Nodes(options) => nodes::run(&context, options).await,
        Command::Tokens(options) => tokens::run(&context, options).await,
        Command::Routes(options) => routes::list(&context, options).await,
        Command::Route(options) => routes::one(&context, options).await,
        Command::Queues(options) => queues::list(&context, options).await,
        Command::Queue(options) => queues::one(&context, options).await,
        Command::Scripts(options) => scripts::run(&context, options).await,
        Command::Config(options) => config_cmd::run(&context, options).await,
        Command::Curves(options) => curves::run(&context, options).await,
        Command::Kill(options) => kill::run(&context, options).await,
        Command::Drain(options) => drain::drain(&context, options).await,
        Command::Undrain(options) => drain::undrain(&context, options).await,
        Command::Doctor(options) => doctor::run(&context, options).await,
        Command::Bench(options) => bench::run(&context, options).await,
    };
    outcome.map_err(|failure| failure.at(&context))
}

#[cfg(test)]
mod tests {
    use super::*;

    // CLI-1, CLI-2: the demo has a store of its own; advice about the operator's would send people to look in the wrong place.
    #[test]
    fn cli_1_advice_about_a_store_is_given_for_the_one_that_was_asked() {
        let globals = context::Globals {
            store: Some("redis://op:hunter2@store.example/3".to_owned()),
            zone: None,
            config: None,
            json: false,
        };
        let context = Context::new(globals).map_err(|failure| failure.text()).expect("a context");
        let told = |store: &str| {
            let (store, reason) = (Some(store.to_owned()), "timed out".to_owned());
            let error = Error::Unreachable { during: "node/beat", store, reason };
            Failure::Error(error).at(&context).text().expect("a text")
        };
        let own = told("redis://store.example:6379/3");
        assert!(own.contains("--store") && own.contains("store.example:6379/3"), "{own}");
        for other in ["unix:///tmp/maitred-x/store.sock?db=0", "redis://store.example:6379/31"] {
            let told = told(other);
            assert!(told.ends_with(&format!("{other}: timed out")), "{told}");
        }
    }
}
