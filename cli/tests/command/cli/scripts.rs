use std::fs;
use std::path::Path;
use std::process::Command;

use maitred::store::scripts;
use serde_json::{Value, json};

use crate::fixtures::command::{CliFixture, Ran, maitred, run};

/// Nobody listens there.
const NOWHERE: &str = "redis://127.0.0.1:1";

// STO-2: what this build carries can be read off it, with a store or without.
#[tokio::test]
async fn sto_2_scripts_are_listed_with_and_without_a_store() {
    let ran = run(maitred(&["scripts", "list", "--store", NOWHERE])).code(0);
    let cells = ran.cells("token/claim");
    assert_eq!((cells[1].as_str(), cells[3].as_str()), (scripts::TOKEN_CLAIM.pinned(), "?"));
    ran.shows(&["loaded is not known: the store did not answer"]);
    let told = run(maitred(&["scripts", "list", "--store", NOWHERE, "--json"])).code(0).json();
    assert_eq!(told["scripts"].as_array().map(Vec::len), Some(scripts::all().len()));
    assert!(told["scripts"][0]["loaded"].is_null() && told["store_error"].is_string(), "{told}");

    let fixture = CliFixture::new().await;
    assert_eq!(fixture.run(&["scripts", "list"]).code(0).cells("token/claim")[3], "yes");
    fixture.by_hand(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(fixture.run(&["scripts", "list"]).code(0).cells("token/claim")[3], "no");
}

#[tokio::test]
async fn sto_2_scripts_are_verified_here_and_in_the_store() {
    let mut command = maitred(&["scripts", "verify", "--store", NOWHERE]);
    command.env_remove("MAITRED_SECRET");
    run(command).code(0).shows(&[&format!("ok: {} scripts match their pins", scripts::all().len())]);
    let fixture = CliFixture::new().await;
    assert_eq!(fixture.json(&["scripts", "verify", "--loaded"])["ok"], true);
    fixture.by_hand(&["SCRIPT", "FLUSH"]).await;
    fixture.run(&["scripts", "verify", "--loaded"]).code(1).shows(&["script token/claim is not in the store"]);
    let told = fixture.run(&["scripts", "verify", "--loaded", "--json"]).code(1).json();
    assert_eq!(
        (&told["ok"], &told["scripts"][0]["ok"], &told["scripts"][0]["loaded"]),
        (&json!(false), &json!(true), &json!(false))
    );
    assert_eq!(fixture.json(&["scripts", "load"])["loaded"].as_array().map(Vec::len), Some(scripts::all().len()));
    fixture.run(&["scripts", "verify", "--loaded"]).code(0);
}

fn pin(root: &Path) -> Ran {
    let mut command = maitred(&["scripts", "pin"]);
    command.current_dir(root);
    run(command)
}

fn sha1sum_passes(root: &Path) -> bool {
    let checked = Command::new("sh").args(["-c", "sha1sum -c sha1/*/*.sha1"]).current_dir(root).output();
    checked.expect("sha1sum runs").status.success()
}

// STO-1, STO-2: the pins are what sha1sum says, so that a review needs no tool of ours.
#[test]
fn sto_2_pins_are_rewritten_in_the_format_of_sha1sum() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path();
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
        fs::write(path, text).expect("a file");
    };
    pin(root).code(2).complains(&["lua/<system>/<verb>.lua", "--root"]);

    write("lua/token/issue.lua", "return 1\n");
    write("lua/node/beat.lua", "return 2\n");
    write("lua/node/notes.txt", "not a script\n");
    write("sha1/node/gone.lua.sha1", "da39a3ee5e6b4b0d3255bfef95601890afd80709  lua/node/gone.lua\n");
    pin(root).code(0).shows(&[
        "added sha1/node/beat.lua.sha1",
        "added sha1/token/issue.lua.sha1",
        "removed sha1/node/gone.lua.sha1",
        "3 pins written or removed, 0 as they were; build again",
    ]);
    assert!(sha1sum_passes(root) && !root.join("sha1/node/gone.lua.sha1").exists());

    write("lua/token/issue.lua", "return 3\n");
    assert!(!sha1sum_passes(root), "a changed script must not pass");
    let args = ["scripts", "pin", "--json", "--root", root.to_str().expect("UTF-8")];
    let told = run(maitred(&args)).code(0).json();
    let want =
        json!({"ok": true, "added": [], "changed": ["sha1/token/issue.lua.sha1"], "removed": [], "unchanged": 1});
    assert_eq!(told, want);
    assert!(sha1sum_passes(root));
    pin(root).code(0).shows(&["0 pins written or removed, 2 as they were"]);

    let pinned = fs::read(root.join("sha1/token/issue.lua.sha1")).expect("the pin");
    write("lua/token/issue.lua", "return 3\r\n");
    pin(root).code(2).complains(&["lua/token/issue.lua", "CR"]);
    assert_eq!(fs::read(root.join("sha1/token/issue.lua.sha1")).expect("the pin"), pinned);
}

// STO-2: the pins in the repository are those that the command writes.
#[test]
fn sto_2_the_repositorys_own_pins_are_fresh() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let copied = Command::new("cp").arg("-R").args([root.join("lua"), root.join("sha1")]).arg(dir.path()).status();
    assert!(copied.expect("cp runs").success());
    let told: Value =
        run(maitred(&["scripts", "pin", "--json", "--root", dir.path().to_str().expect("UTF-8")])).code(0).json();
    assert_eq!(told["unchanged"], scripts::all().len(), "{told}");
}
