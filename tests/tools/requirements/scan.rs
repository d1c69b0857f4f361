//! Finds the ids that the sources name, and the tests that name them.
//!
//! A test proves an id that its name starts with (`fn tok_3_…`), that the comment above it names, or that its body names.
//! The head of a file (`//!`) speaks for the tests of that file and of the folder of its name. What is said elsewhere, in
//! library code or in a helper, proves nothing, but must not name an id that is not there. The sources are formatted, so
//! a function ends at the first `}` that stands as far in as its `fn`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// An id: family and number.
pub type Id = (String, u32);

/// How directly a test names an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Named {
    ByName,
    Above,
    Inside,
    AtHead,
}

/// One test, or the head of one file, that names an id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Proof {
    pub named: Named,
    pub file: String,
    /// `None` for the head of a file.
    pub test: Option<String>,
}

/// What the sources name.
#[derive(Debug, Default)]
pub struct Found {
    pub proofs: BTreeMap<Id, Vec<Proof>>,
    /// Every mention at all: id, file and line.
    pub mentions: Vec<(Id, String, usize)>,
}

impl Found {
    fn prove(&mut self, id: Id, proof: Proof) {
        let proofs = self.proofs.entry(id).or_default();
        let same = |known: &Proof| known.file == proof.file && known.test == proof.test;
        match proofs.iter_mut().find(|known| same(known)) {
            Some(known) => known.named = known.named.min(proof.named),
            None => proofs.push(proof),
        }
    }

    /// Takes in one file, whose name is `file`. `folder` says whether tests stand in the folder of its name.
    pub fn read(&mut self, file: &str, text: &str, folder: bool) {
        let lines: Vec<&str> = text.lines().collect();
        let mut owner: Vec<Option<(Named, usize)>> = vec![None; lines.len()];
        let mut tests = Vec::new();
        let mut at = 0;
        while let Some(line) = lines.get(at) {
            let is_test = line.trim_start().starts_with("#[test") || line.trim_start().starts_with("#[tokio::test");
            let name = is_test.then(|| (at..lines.len()).find_map(|n| Some((n, fn_name(lines[n])?)))).flatten();
            let Some((starts, name)) = name else {
                at += 1;
                continue;
            };
            let indent = indent(lines[starts]);
            let ends =
                (starts + 1..lines.len()).find(|n| lines[*n] == format!("{indent}}}")).unwrap_or(lines.len() - 1);
            let is_above = |n: &usize| ["//", "#["].iter().any(|mark| lines[*n].trim_start().starts_with(mark));
            let above = (0..at).rev().take_while(is_above).last().unwrap_or(at);
            owner[above..starts].fill(Some((Named::Above, tests.len())));
            owner[starts..=ends].fill(Some((Named::Inside, tests.len())));
            for id in ids_of_name(&name) {
                self.mentions.push((id.clone(), file.to_owned(), starts + 1));
                self.prove(id, Proof { named: Named::ByName, file: file.to_owned(), test: Some(name.clone()) });
            }
            tests.push(name);
            at = ends + 1;
        }
        for (n, line) in lines.iter().enumerate() {
            for id in ids_of_text(line) {
                self.mentions.push((id.clone(), file.to_owned(), n + 1));
                let (named, test) = match owner[n] {
                    Some((named, test)) => (named, Some(tests[test].clone())),
                    None if line.starts_with("//!") && (folder || !tests.is_empty()) => (Named::AtHead, None),
                    None => continue,
                };
                self.prove(id, Proof { named, file: file.to_owned(), test });
            }
        }
    }

    /// The proofs of an id, the most direct first. The head of a file adds nothing where a test of it is named.
    pub fn of(&self, id: &Id) -> Vec<&Proof> {
        let mut proofs: Vec<&Proof> = self.proofs.get(id).into_iter().flatten().collect();
        let all = proofs.clone();
        proofs.retain(|proof| {
            proof.test.is_some() || !all.iter().any(|other| other.test.is_some() && other.is_of(proof))
        });
        proofs.sort_by_key(|proof| proof.named);
        proofs
    }
}

impl Proof {
    /// True where this test stands in the file of `head` or in the folder of its name.
    fn is_of(&self, head: &Proof) -> bool {
        self.file == head.file
            || self.file.starts_with(&format!("{}/", head.file.trim_end_matches(".rs").trim_end_matches("/main")))
    }
}

fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

fn fn_name(line: &str) -> Option<String> {
    let rest = line.trim_start();
    let rest = rest.strip_prefix("async ").unwrap_or(rest).strip_prefix("fn ")?;
    Some(rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect())
}

/// The ids a name starts with: `cli_2_dsp_5_the_demo` has two.
fn ids_of_name(name: &str) -> Vec<Id> {
    let mut words = name.split('_');
    let mut ids = Vec::new();
    while let (Some(family), Some(number)) = (words.next(), words.next()) {
        let family = family.to_uppercase();
        match number.parse() {
            Ok(number) if is_family(&family) => ids.push((family, number)),
            _ => break,
        }
    }
    ids
}

/// The ids a line names; `TOK-1 to TOK-8` names all eight.
fn ids_of_text(line: &str) -> Vec<Id> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let words: Vec<&str> = line.split(|c| !is_part(c)).filter(|word| !word.is_empty()).collect();
    let mut ids: Vec<Id> = Vec::new();
    let mut range = false;
    for word in words {
        let id = word.trim_end_matches('-').split_once('-').and_then(|(family, number)| {
            is_family(family).then(|| Some((family.to_owned(), number.parse::<u32>().ok()?))).flatten()
        });
        if let Some((family, number)) = id {
            let from = ids.last().filter(|(last, _)| range && *last == family).map_or(number, |(_, last)| last + 1);
            ids.extend((from..=number).map(|number| (family.clone(), number)));
        }
        range = word == "to" && !ids.is_empty();
    }
    ids
}

/// Three capitals, or the `R` of the rules; not those that other things are called by.
fn is_family(name: &str) -> bool {
    let capitals = name.bytes().all(|byte| byte.is_ascii_uppercase());
    name == "R" || (capitals && name.len() == 3 && !["SHA", "UTF", "RFC"].contains(&name))
}

/// Reads the sources under `root`, but for the list itself.
pub fn scan(root: &Path) -> Found {
    let mut files = Vec::new();
    for folder in ["src", "tests", "cli/src", "cli/tests", "testkit/src", "testkit/tests"] {
        walk(&root.join(folder), &mut files);
    }
    files.sort();
    let mut found = Found::default();
    for path in files {
        let file = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        if file.starts_with("tests/tools/requirements") {
            continue;
        }
        // `tests/store/wait.rs` speaks for `tests/store/wait/`, and `tests/observe/main.rs` for `tests/observe/`.
        let of_tests = file.split('/').any(|folder| folder == "tests");
        let has_folder = file.ends_with("/main.rs") || path.with_extension("").is_dir();
        found.read(&file, &fs::read_to_string(&path).unwrap(), of_tests && has_folder);
    }
    found
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
