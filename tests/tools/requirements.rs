//! `docs/requirements.md` says of every requirement which tests prove it, and is made from the tests themselves. If this
//! fails, a promise is listed as kept that nothing checks any more.

mod list;
mod scan;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use list::{FAMILIES, Family, PROVED};
use scan::{Found, Id, Named, Proof, scan};

const PATH: &str = "docs/requirements.md";
const WRITE: &str = "MAITRED_WRITE_REQUIREMENTS";
/// Tests named for one id.
const SHOWN: usize = 6;

const HEAD: &str = "\
# Requirements

What maitred promises, and the tests that prove it. `grep -rn TOK-3 tests src cli testkit` finds everything that names an id. `open`:
no test names it yet. `+n`: so many more tests. A file without a test's name proves it by all that it holds.

The list goes by what the tests name. It says where to look, not that every clause is covered or that the tests pass.

Made from the tests: `MAITRED_WRITE_REQUIREMENTS=1 cargo test --test tools requirements` writes this file.
";

fn found() -> Found {
    scan(Path::new(env!("CARGO_MANIFEST_DIR")))
}

fn id_of(text: &str) -> Id {
    let (family, number) = text.split_once('-').unwrap();
    (family.to_owned(), number.parse().unwrap())
}

fn known() -> BTreeSet<Id> {
    FAMILIES.iter().flat_map(|family| family.ids).map(|(id, _)| id_of(id)).collect()
}

fn proved_by(proofs: &[&Proof]) -> String {
    if proofs.is_empty() {
        return "open".to_owned();
    }
    let mut files: Vec<(&str, Vec<String>)> = Vec::new();
    for proof in proofs.iter().take(SHOWN) {
        let test = proof.test.iter().map(|test| format!("`{test}`"));
        match files.iter_mut().find(|(file, _)| *file == proof.file) {
            Some((_, tests)) => tests.extend(test),
            None => files.push((&proof.file, test.collect())),
        }
    }
    let told = files.iter().map(|(file, tests)| match tests.as_slice() {
        [] => (*file).to_owned(),
        tests => format!("{file}: {}", tests.join(", ")),
    });
    let mut text = told.collect::<Vec<_>>().join("; ");
    if let Some(more @ 1..) = proofs.len().checked_sub(SHOWN) {
        write!(text, "; +{more}").unwrap();
    }
    text
}

fn table(family: &Family, found: &Found) -> String {
    let mut text = format!("\n## {}: {}\n\n| id | what | proved by |\n|---|---|---|\n", family.prefix, family.title);
    for (id, what) in family.ids {
        writeln!(text, "| {id} | {what} | {} |", proved_by(&found.of(&id_of(id)))).unwrap();
    }
    text
}

#[test]
fn the_document_says_what_the_tests_prove() {
    let found = found();
    let tables: String = FAMILIES.iter().map(|family| table(family, &found)).collect();
    let text = format!("{HEAD}{tables}");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(PATH, &text).unwrap();
    }
    let written = std::fs::read_to_string(PATH).unwrap_or_default();
    assert!(written == text, "{PATH} is stale; {WRITE}=1 cargo test --test tools requirements writes it");
}

#[test]
fn no_source_names_an_id_that_is_not_there() {
    let known = known();
    let strange: Vec<String> = found()
        .mentions
        .into_iter()
        .filter(|(id, ..)| !known.contains(id))
        .map(|((family, number), file, line)| format!("{file}:{line}: {family}-{number}"))
        .collect();
    assert!(strange.is_empty(), "{strange:#?}");
}

#[test]
fn what_is_claimed_as_proved_has_a_test() {
    let found = found();
    let lost: Vec<String> = PROVED
        .iter()
        .flat_map(|(family, first, last)| (*first..=*last).map(|number| ((*family).to_owned(), number)))
        .filter(|id| found.of(id).is_empty())
        .map(|(family, number)| format!("{family}-{number}"))
        .collect();
    assert!(lost.is_empty(), "nothing proves {lost:?} any more");
}

#[test]
fn the_list_has_every_number_once_and_short_phrases() {
    for family in FAMILIES {
        for ((id, what), number) in family.ids.iter().zip(1_u32..) {
            assert_eq!(id_of(id), (family.prefix.to_owned(), number));
            assert!((1..=12).contains(&what.split(' ').count()) && !what.contains('|'), "{id}");
        }
    }
    let known = known();
    for (family, _, last) in PROVED {
        assert!(known.contains(&((*family).to_owned(), *last)), "{family}-{last}");
    }
}

// If an id is given to the wrong test, the document names a proof that is none.
#[test]
fn an_id_belongs_to_the_test_that_names_it() {
    let text = "\
//! About ENV-1.

/// TOK-9: a helper proves nothing.
fn helper() {}

// TOK-1 to TOK-3, R-7: above, and SHA-1 is no id.
#[tokio::test]
async fn cli_2_dsp_5_both_of_its_name() {
    assert!(true, \"STO-4: inside\");
}

mod tests {
    #[test]
    fn tok_3_in_a_module() {}
}
";
    let mut found = Found::default();
    found.read("tests/x.rs", text, false);
    let named = |id: &str| {
        let proofs = found.of(&id_of(id));
        proofs.into_iter().map(|proof| (proof.named, proof.test.as_deref().unwrap_or("")[..].to_owned())).collect()
    };
    let both = "cli_2_dsp_5_both_of_its_name".to_owned();
    let expect: [(&str, Vec<(Named, String)>); 10] = [
        ("ENV-1", vec![(Named::AtHead, String::new())]),
        ("TOK-9", vec![]),
        ("TOK-1", vec![(Named::Above, both.clone())]),
        ("TOK-2", vec![(Named::Above, both.clone())]),
        ("TOK-3", vec![(Named::ByName, "tok_3_in_a_module".to_owned()), (Named::Above, both.clone())]),
        ("R-7", vec![(Named::Above, both.clone())]),
        ("CLI-2", vec![(Named::ByName, both.clone())]),
        ("DSP-5", vec![(Named::ByName, both.clone())]),
        ("STO-4", vec![(Named::Inside, both)]),
        ("SHA-1", vec![]),
    ];
    for (id, proofs) in expect {
        let found: Vec<(Named, String)> = named(id);
        assert_eq!(found, proofs, "{id}");
    }
}
