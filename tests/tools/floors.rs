//! The floors of the house, read out of the sources' own `use` paths: no file uses one above it, and no files of the agent
//! use each other in a circle.

mod paths;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tree::{Tree, circles};

/// The modules of the library, the lowest first. A file uses its own module and those below it.
const HOUSE: [&str; 13] = [
    "ids", "error", "envelope", "store", "node", "message", "token", "route", "limit", "queue", "select", "place",
    "agent",
];

/// The floors inside the agent, the lowest first; each is a list of folders and files of `src/agent`. A file uses its own
/// floor and those below it.
const AGENT: [&[&str]; 8] =
    [&["config"], &["model"], &["core"], &["backend", "queue"], &["proxy"], &["loops"], &["start"], &["api"]];

fn floor_of_house(module: &[String]) -> Option<usize> {
    HOUSE.iter().position(|name| module.first().is_some_and(|first| first == name))
}

fn floor_of_agent(module: &[String]) -> Option<usize> {
    let room = module.get(1)?;
    AGENT.iter().position(|rooms| rooms.contains(&room.as_str()))
}

fn is_agent(module: &[String]) -> bool {
    module.first().is_some_and(|first| first == "agent")
}

/// Arrows from a file to one above it, as lines to read.
fn arrows_up(tree: &Tree, floor: impl Fn(&[String]) -> Option<usize>) -> Vec<String> {
    let mut up = Vec::new();
    for (from, to) in tree.arrows() {
        if let (Some(lower), Some(upper)) = (floor(&from), floor(&to))
            && lower < upper
        {
            up.push(format!("{} uses {}", from.join("::"), to.join("::")));
        }
    }
    up.sort();
    up
}

fn sources() -> Tree {
    Tree::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

// A module that uses one above it cannot be read, tested or changed without that one.
#[test]
fn no_module_of_the_library_uses_one_above_it() {
    let tree = sources();
    assert!(tree.arrows().len() > 500, "the sources were not read: {} arrows", tree.arrows().len());
    assert_eq!(arrows_up(&tree, floor_of_house), Vec::<String>::new());
}

// What an application holds is made of the state below it, and not the other way round.
#[test]
fn no_file_of_the_agent_uses_one_above_it() {
    let tree = sources();
    let rooms = tree.modules().filter(|module| is_agent(module) && module.len() > 1);
    let homeless: Vec<String> =
        rooms.filter(|module| floor_of_agent(module).is_none()).map(|it| it.join("::")).collect();
    assert_eq!(homeless, Vec::<String>::new(), "every file of the agent has a floor");
    let floor = |module: &[String]| if is_agent(module) { floor_of_agent(module) } else { None };
    assert_eq!(arrows_up(&tree, floor), Vec::<String>::new());
}

// Files that use each other in a circle are one file in several pieces.
#[test]
fn no_files_of_the_agent_use_each_other_in_a_circle() {
    let tree = sources();
    let arrows = tree.arrows().into_iter().filter(|(from, to)| is_agent(from) && is_agent(to));
    let circles: Vec<String> = circles(arrows).into_iter().map(|circle| circle.join(", ")).collect();
    assert_eq!(circles, Vec::<String>::new());
}

// Whoever reads one of two things of one name in an import has to look which it is.
#[test]
fn no_two_modules_export_two_things_of_one_name() {
    let tree = sources();
    let mut homes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for name in HOUSE {
        for (export, home) in tree.exports(&[name.to_owned()]) {
            homes.entry(export).or_default().insert(home.join("::"));
        }
    }
    assert!(homes.len() > 200, "the sources were not read: {} names", homes.len());
    let twice: Vec<_> = homes.into_iter().filter(|(_, homes)| homes.len() > 1).collect();
    assert_eq!(twice, Vec::new());
}

// A check that finds nothing anywhere would pass for ever.
#[test]
fn a_planted_arrow_and_a_planted_circle_are_found() {
    let files = [
        ("agent/mod.rs", "mod api;\nmod core;\npub use api::Agent;\n"),
        ("agent/api/mod.rs", "mod agent;\npub use agent::Agent;\n"),
        ("agent/api/agent.rs", "use crate::agent::core::{Core, live::Live as Config};\n"),
        ("agent/core/mod.rs", "mod live;\nmod state;\npub(super) use state::Core;\n"),
        ("agent/core/state.rs", "use super::live::Live;\nfn start() { crate::agent::Agent::new() }\n"),
        ("agent/core/live.rs", "use super::Core;\n#[cfg(test)]\nmod tests { use crate::agent::api::Agent; }\n"),
        ("store/mod.rs", "// use crate::agent::Agent;\nuse crate::agent::Agent;\n"),
    ];
    let tree = Tree::of(files.map(|(path, text)| (path.to_owned(), text.to_owned())));
    assert_eq!(arrows_up(&tree, floor_of_house), ["store uses agent::api::agent"]);
    let floor = |module: &[String]| if is_agent(module) { floor_of_agent(module) } else { None };
    assert_eq!(arrows_up(&tree, floor), ["agent::core::state uses agent::api::agent"]);
    let found = circles(tree.arrows().into_iter());
    assert_eq!(found, [["agent::api::agent", "agent::core::live", "agent::core::state"]]);
}
