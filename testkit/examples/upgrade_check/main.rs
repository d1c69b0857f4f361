//! Runs processes of two builds in one fleet and checks that they do each other's work (STO-17).
//!
//! ```text
//! upgrade_check OLD NEW      paths of two `maitred` binaries; `.ci/upgrade-check` builds them
//! ```
//!
//! Each check has a store and a fleet of its own, so that one that fails says nothing of the next. The exit code is 1 where
//! one failed.

mod dispatch;
mod fleet;
mod killed;
mod login;
mod peer;
mod scripts;
mod sweep;
mod wait;

use std::any::Any;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Instant;

use fleet::{Build, Builds};
use tokio::task::{LocalSet, spawn_local};

/// What a check saw, in a few words. One that fails panics with its reason.
type Check = Pin<Box<dyn Future<Output = String>>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [old, new] = paths.as_slice() else {
        eprintln!("usage: upgrade_check OLD NEW (two maitred binaries)");
        return ExitCode::from(2);
    };
    // The reason stands in the table.
    std::panic::set_hook(Box::new(|_| {}));

    let mut failed = 0;
    println!("{:<7} {:<62} {:>5}  what was seen", "result", "check", "s");
    for (name, check) in checks(&Builds { old: old.clone(), new: new.clone() }) {
        let begin = Instant::now();
        let (result, told) = match LocalSet::new().run_until(async { spawn_local(check).await }).await {
            Ok(told) => ("ok", told),
            Err(error) => ("FAILED", error.try_into_panic().map_or_else(|error| error.to_string(), reason)),
        };
        failed += usize::from(result != "ok");
        println!("{result:<7} {name:<62} {:>5.1}  {told}", begin.elapsed().as_secs_f64());
    }
    println!("{failed} of the checks failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn checks(builds: &Builds) -> Vec<(String, Check)> {
    let mut checks: Vec<(String, Check)> = vec![
        ("every script of the old build is in the new one".to_owned(), Box::pin(scripts::kept(builds.clone()))),
        ("all see each other".to_owned(), Box::pin(dispatch::seen(builds.clone()))),
        ("dispatches land in all four combinations".to_owned(), Box::pin(dispatch::landed(builds.clone()))),
        ("a transfer that is released brings the place home".to_owned(), Box::pin(dispatch::released(builds.clone()))),
        ("a login line is admitted by either build, at one rate".to_owned(), Box::pin(login::admitted(builds.clone()))),
        ("a login line sells no place twice and loses none".to_owned(), Box::pin(login::sold(builds.clone()))),
        ("a wait line is served by either build, in its order".to_owned(), Box::pin(wait::served(builds.clone()))),
    ];
    for dead in [Build::Old, Build::New] {
        let others = dead.other();
        checks.push((
            format!("a dispatch of a killed {dead} proxy is finished by the {others} build"),
            Box::pin(killed::claim(builds.clone(), dead)),
        ));
        checks.push((
            format!("who waited at a killed {dead} proxy keeps the place at the {others} one"),
            Box::pin(killed::place(builds.clone(), dead)),
        ));
        checks.push((
            format!("what a dead {dead} fleet leaves is swept by the {others} build"),
            Box::pin(sweep::swept(builds.clone(), dead)),
        ));
    }
    checks
}

fn reason(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked without a text").to_owned()
}
