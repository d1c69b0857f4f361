//! `maitred doctor`: what is wrong with the store, its rights and its data, and what to do about it.

mod checks;
mod lines;
mod probe;
mod routes;

use clap::Args;
use serde::Serialize;
use serde_json::json;

use maitred::error::Error;
use maitred::store::Verifier;

use super::Failure;
use super::context::Context;
use super::view::{self, Grid, Tone};

/// What to do about signatures that nobody here accepts.
const STRANGER: &str = "either another secret is in use (compare key ids) or a stranger writes here";

/// Options of `maitred doctor`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Also run real round trips on a scratch node and player, with their times; leaves nothing behind
    #[arg(long)]
    probe: bool,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One line of the report.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    pub check: &'static str,
    pub verdict: Verdict,
    pub detail: String,
    /// What to do; empty where nothing is to be done.
    pub advice: String,
}

impl Finding {
    pub fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, detail: detail.into(), advice: String::new() }
    }

    pub fn warn(check: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warn, detail: detail.into(), advice: advice.into() }
    }

    pub fn fail(check: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Fail, detail: detail.into(), advice: advice.into() }
    }

    /// A check that could not be made because the store refused or did not answer.
    pub fn error(check: &'static str, error: &Error) -> Self {
        match error {
            Error::Refused { refusal, detail, keys, .. } => {
                let about = if keys.is_empty() { String::new() } else { format!(" ({})", keys.join(", ")) };
                Self::fail(check, format!("{detail}{about}"), refusal.advice())
            }
            Error::Unreachable { store, reason, .. } => {
                let detail = store.as_ref().map_or_else(|| reason.clone(), |store| format!("{store}: {reason}"));
                Self::fail(check, detail, "look whether the store is up and reachable")
            }
            other => Self::fail(check, other.to_string(), "see the message"),
        }
    }
}

pub(super) async fn run(context: &Context, options: Options) -> Result<(), Failure> {
    let mut findings = Vec::new();
    let verifier = match context.verifier() {
        Ok(verifier) => {
            let also = verifier.keyring().accepted_kids().len().saturating_sub(1);
            let detail = format!("key id {}, {also} more accepted for verifying", verifier.keyring().kid().as_str());
            findings.push(Finding::ok("secret", detail));
            Some(verifier)
        }
        Err(error) => {
            findings.push(Finding::fail("secret", error.to_string(), "set the variable to the fleet's secret"));
            None
        }
    };
    let mut steps = Vec::new();
    match context.unprepared_store().await {
        Ok(store) => {
            checks::all(context, &store, verifier.as_ref(), &mut findings).await;
            if let Some(verifier) = verifier.as_ref().filter(|_| options.probe) {
                steps = probe::run(context, &store, verifier, &mut findings).await;
            }
        }
        Err(error @ Error::Unreachable { .. }) => {
            findings.push(Finding { advice: context.store_hint().to_owned(), ..Finding::error("reachable", &error) });
        }
        Err(error) => findings.push(Finding::error("reachable", &error)),
    }
    report(context, verifier.as_ref(), &findings, &steps)
}

fn report(
    context: &Context,
    verifier: Option<&Verifier>,
    findings: &[Finding],
    steps: &[probe::Step],
) -> Result<(), Failure> {
    let worst = findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok);
    if context.json {
        let audit = verifier.map(|verifier| verifier.audit().total()).unwrap_or_default();
        view::json(&json!({
            "ok": worst != Verdict::Fail, "checks": findings, "probe": steps, "not_believed": audit,
        }));
    } else {
        let mut grid = Grid::new(&["check", "", "found", "what to do"]);
        for finding in findings {
            let (word, tone) = match finding.verdict {
                Verdict::Ok => ("ok", Tone::Good),
                Verdict::Warn => ("warn", Tone::Warn),
                Verdict::Fail => ("FAIL", Tone::Bad),
            };
            grid.row([
                (finding.check.to_owned(), Tone::Plain),
                (word.to_owned(), tone),
                (finding.detail.clone(), Tone::Plain),
                (finding.advice.clone(), Tone::Plain),
            ]);
        }
        grid.print();
        if !steps.is_empty() {
            let mut grid = Grid::new(&["probe step", "answer", "µs"]);
            for step in steps {
                grid.row([
                    (step.step.to_owned(), Tone::Plain),
                    (step.answer.clone(), if step.good { Tone::Good } else { Tone::Bad }),
                    (step.micros.to_string(), Tone::Plain),
                ]);
            }
            grid.print();
        }
    }
    if worst == Verdict::Fail { Err(Failure::Check) } else { Ok(()) }
}
