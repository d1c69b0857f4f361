//! What the library documents for applications is a list, so that a name comes to it on purpose and not by a `pub` that a
//! test needed. What is public for the command and the tests alone is hidden and not in it.
//!
//! The names are read from the sources: the exports of every module that has a page, in the form that rustfmt gives them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const PATH: &str = "tests/tools/public_names.txt";
const WRITE: &str = "MAITRED_WRITE_NAMES";

/// The declarations that make a name public where they stand, besides `use` and `mod`.
const KINDS: [&str; 7] = ["const", "enum", "fn", "static", "struct", "trait", "type"];

/// The public lines of a module's file that are not hidden, each up to its end.
fn public_lines(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut hidden = false;
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if line == "#[doc(hidden)]" {
            hidden = true;
        } else if line.starts_with("pub ") {
            let mut whole = line.to_owned();
            while whole.starts_with("pub use ") && !whole.ends_with(';') {
                let Some(next) = lines.next() else { break };
                whole.push_str(next.trim());
            }
            if !std::mem::take(&mut hidden) {
                found.push(whole);
            }
        } else if !line.starts_with("#[") && !line.starts_with("///") {
            hidden = false;
        }
    }
    found
}

/// The names that one `use` line makes known: `pub use a::{B, C as D};` makes `B` and `D`.
fn names_of(line: &str) -> Vec<String> {
    let path = line.trim_start_matches("pub use ").trim_end_matches(';');
    let (_, inside) = path.split_once('{').unwrap_or(("", path));
    let names = inside.trim_end_matches('}').split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| name.rsplit([' ', ':']).next().unwrap_or(name).to_owned()).collect()
}

/// Adds what the module `path` of the file `file` documents, and its modules.
fn walk(path: &str, file: &Path, found: &mut BTreeSet<String>) {
    let source = std::fs::read_to_string(file).expect("a module's file");
    for line in public_lines(&source) {
        let word = |at: usize| line.split([' ', '(', '<', ':', ';']).nth(at).unwrap_or_default();
        match word(1) {
            "use" => found.extend(names_of(&line).iter().map(|name| format!("{path}{name}"))),
            "mod" => {
                let name = word(2);
                let folder = file.parent().expect("a folder");
                let candidates: [PathBuf; 2] =
                    [folder.join(name).join("mod.rs"), folder.join(name).with_extension("rs")];
                let child = candidates.iter().find(|file| file.exists()).expect("the module's file");
                walk(&format!("{path}{name}::"), child, found);
            }
            kind if KINDS.contains(&kind) => {
                found.insert(format!("{path}{}", word(2)));
            }
            _ => panic!("a public line of a kind that this test does not know: {line}"),
        }
    }
}

// Whoever embeds the library relies on each name that has a page; one that got there by accident cannot be taken back.
#[test]
fn the_names_that_the_library_documents_are_those_of_the_list() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeSet::new();
    walk("maitred::", &root.join("src/lib.rs"), &mut found);
    assert!(found.len() > 100, "the sources were not read: {} names", found.len());
    let text: String = found.iter().map(|name| format!("{name}\n")).collect();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(root.join(PATH), &text).expect("the list");
    }
    let listed = std::fs::read_to_string(root.join(PATH)).expect("the list");
    let listed: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    let new: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "new: {new:?}, gone: {gone:?}; hide what no application needs, and write the list with `{WRITE}=1 cargo test --test tools public_names`"
    );
}

// A walk that passes names over would let any of them in.
#[test]
fn names_of_every_form_are_found_and_hidden_ones_are_not() {
    let source = "\
pub mod a;
#[doc(hidden)]
pub mod b;
pub use c::{
    D, E as F,
};
pub use g::H;
pub(crate) use i::J;
/// Hidden too.
#[doc(hidden)]
#[derive(Debug)]
pub struct K;
#[derive(Debug)]
pub struct L {
    pub m: u8,
}
";
    let lines = public_lines(source);
    assert_eq!(lines, ["pub mod a;", "pub use c::{D, E as F,};", "pub use g::H;", "pub struct L {"]);
    assert_eq!(names_of(&lines[1]), ["D", "F"]);
    assert_eq!(names_of(&lines[2]), ["H"]);
}
