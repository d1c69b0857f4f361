//! The modules of a source tree, and which of them uses which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::paths::{Named, paths};

/// A module by its path from the root of the library: `["agent", "core", "state"]`.
pub type Module = Vec<String>;

/// The modules with the paths that each of them names.
pub struct Tree {
    modules: BTreeMap<Module, Vec<Named>>,
}

impl Tree {
    /// The tree below the folder `root`.
    pub fn read(root: &Path) -> Self {
        let mut files = Vec::new();
        collect(root, root, &mut files);
        Self::of(files)
    }

    /// The tree of these files, each a path from the root and its text.
    pub fn of(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let modules = files.into_iter().map(|(path, text)| (module(&path), paths(&text))).collect();
        Self { modules }
    }

    pub fn modules(&self) -> impl Iterator<Item = &Module> {
        self.modules.keys()
    }

    /// Every pair of modules of which the first uses the second. A line of a parent that hands on what its children have is
    /// none: whoever uses it there uses the child.
    pub fn arrows(&self) -> BTreeSet<(Module, Module)> {
        let mut arrows = BTreeSet::new();
        for (from, named) in &self.modules {
            for path in named.iter().filter(|path| !path.hands_on) {
                if let Some(to) =
                    self.absolute(from, &path.segments).and_then(|path| self.home(&path, &mut BTreeSet::new()))
                    && to != *from
                    && !to.is_empty()
                {
                    arrows.insert((from.clone(), to));
                }
            }
        }
        arrows
    }

    /// What a module hands on, each with the module that has it.
    pub fn exports(&self, module: &[String]) -> Vec<(String, Module)> {
        let named = self.modules.get(module).into_iter().flatten().filter(|path| path.hands_on);
        let exports = named.filter_map(|path| {
            let home = self.home(&self.absolute(&module.to_vec(), &path.segments)?, &mut BTreeSet::new())?;
            Some((path.alias.clone()?, home))
        });
        exports.collect()
    }

    /// A path as it stands in `module`, from the root of the library; `None` for one of another crate.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
        let mut base = module.clone();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &rest[1..];
            }
            "super" => {
                while rest.first().is_some_and(|first| first == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            "self" => rest = &rest[1..],
            // A child of this module, by its name alone.
            child => {
                base.push(child.to_owned());
                let known = self.modules.contains_key(&base);
                base.pop();
                if !known {
                    return None;
                }
            }
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    /// The module that has what `path` names, through whatever hands it on; `None` for a path that was `seen` on the way.
    fn home(&self, path: &[String], seen: &mut BTreeSet<Module>) -> Option<Module> {
        if !seen.insert(path.to_vec()) {
            return None;
        }
        let length = (0..=path.len()).rev().find(|length| self.is_module(&path[..*length]))?;
        let (module, rest) = path.split_at(length);
        let Some(name) = rest.first() else { return Some(module.to_vec()) };
        let known = self.modules.get(module).into_iter().flatten();
        let handed = known.filter(|path| path.alias.as_ref() == Some(name)).find_map(|path| {
            let target = self.absolute(&module.to_vec(), &path.segments)?;
            self.home(&[target.as_slice(), &rest[1..]].concat(), seen)
        });
        Some(handed.unwrap_or_else(|| module.to_vec()))
    }

    fn is_module(&self, path: &[String]) -> bool {
        path.is_empty() || self.modules.contains_key(path)
    }
}

fn module(path: &str) -> Module {
    let mut module: Module = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).expect("the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(root, &path, files);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            let name = path.strip_prefix(root).expect("below the root").to_string_lossy().replace('\\', "/");
            files.push((name, std::fs::read_to_string(&path).expect("a source file")));
        }
    }
}

/// Modules that reach each other over the arrows, in groups of more than one.
pub fn circles(arrows: impl Iterator<Item = (Module, Module)>) -> Vec<Vec<String>> {
    let mut next: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (from, to) in arrows {
        next.entry(from).or_default().insert(to);
    }
    let reach = |start: &Module| {
        let mut seen = BTreeSet::new();
        let mut open = vec![start.clone()];
        while let Some(module) = open.pop() {
            for to in next.get(&module).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        seen
    };
    let all: BTreeMap<&Module, BTreeSet<Module>> = next.keys().map(|module| (module, reach(module))).collect();
    let mut circles = BTreeSet::new();
    for (module, reached) in &all {
        if reached.contains(*module) {
            let mutual = reached.iter().filter(|other| all.get(other).is_some_and(|back| back.contains(*module)));
            circles.insert(mutual.map(|module| module.join("::")).collect::<Vec<_>>());
        }
    }
    circles.into_iter().collect()
}
