//! Imports between modules point one way.
//!
//! The README of each crate lists the top-level modules in a table, in order: each may import those below it. Within a
//! crate no files import each other in a cycle; a module and its own submodules count as one there, as a submodule may
//! use what its parent declares. Tests may import everything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use postonce_tests::workspace;
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, Macro, UseTree};

use super::{Source, sources};

/// The names of a module and of those around it, from the root of its crate; `main` is the binary.
type Module = Vec<String>;

/// Heading of the table that lists the modules of a crate.
const HEADING: &str = "## Modules, in order";

/// The imports of one crate.
#[derive(Default)]
struct Imports {
    /// For each module with a file of its own, the modules that it imports.
    of: BTreeMap<Module, BTreeSet<Module>>,
}

impl Imports {
    fn of(crate_name: &str, sources: &[Source]) -> Self {
        let prefix = format!("{crate_name}/src/");
        let files: BTreeMap<Module, &Source> = sources
            .iter()
            .filter(|source| !source.is_test())
            .filter_map(|source| Some((module_of(source.path.strip_prefix(&prefix)?), source)))
            .collect();
        let modules: BTreeSet<Module> = files.keys().cloned().collect();
        let of = files.iter().map(|(module, source)| {
            let syntax =
                syn::parse_file(&source.text).unwrap_or_else(|error| panic!("{}: {error}", source.path));
            let mut reader = Reader { position: module.clone(), modules: &modules, found: BTreeSet::new() };
            reader.visit_file(&syntax);
            reader.found.retain(|found| found != module && !found.is_empty());
            (module.clone(), reader.found)
        });
        Self { of: of.collect() }
    }

    fn all(&self) -> impl Iterator<Item = (&Module, &Module)> {
        self.of.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)))
    }

    /// Imports of a module that does not stand below the importing one.
    fn against(&self, order: &[String]) -> Vec<String> {
        let place = |module: &Module| {
            let listed = order.iter().position(|listed| Some(listed) == module.first());
            listed.unwrap_or_else(|| panic!("the table of modules lacks {module:?}; it lists {order:?}"))
        };
        let imports = self.all().filter(|(from, to)| !from.is_empty() && place(from) > place(to));
        imports.map(|(from, to)| format!("{} imports {}", from.join("::"), to.join("::"))).collect()
    }

    /// Modules that import each other in a cycle, or are imported by such.
    fn cyclic(&self) -> Vec<String> {
        let related = |from: &Module, to: &Module| from.starts_with(to) || to.starts_with(from);
        let mut left: BTreeMap<&Module, BTreeSet<&Module>> = self
            .of
            .iter()
            .map(|(from, to)| (from, to.iter().filter(|to| !related(from, to)).collect()))
            .collect();
        // What imports nothing that is left is in no cycle.
        while let Some(leaf) = left.iter().find(|(_, to)| to.is_empty()).map(|(from, _)| *from) {
            left.remove(leaf);
            for to in left.values_mut() {
                to.remove(leaf);
            }
        }
        let show = |(from, to): (&&Module, &BTreeSet<&Module>)| {
            let to: Vec<String> = to.iter().map(|to| to.join("::")).collect();
            format!("{} imports {}", from.join("::"), to.join(", "))
        };
        left.iter().map(show).collect()
    }
}

fn module_of(path: &str) -> Module {
    let path = path.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
}

/// Collects the modules that one file names.
struct Reader<'a> {
    /// The module that is read, inline modules included.
    position: Module,
    modules: &'a BTreeSet<Module>,
    found: BTreeSet<Module>,
}

impl Reader<'_> {
    /// Adds the module with a file that a path leads into, if it is one of this crate.
    fn add(&mut self, path: &[String]) {
        let Some((first, rest)) = path.split_first() else { return };
        let mut target = match first.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => self.position.clone(),
            name => {
                let child = [self.position.as_slice(), &[name.to_owned()]].concat();
                if !self.modules.contains(&child) {
                    return;
                }
                child
            }
        };
        if first == "super" {
            target.pop();
        }
        for name in rest {
            if name == "super" {
                target.pop();
            } else {
                target.push(name.clone());
            }
        }
        while !target.is_empty() && !self.modules.contains(&target) {
            target.pop();
        }
        self.found.insert(target);
    }

    fn add_tree(&mut self, before: &[String], tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                self.add_tree(&[before, &[path.ident.to_string()]].concat(), &path.tree);
            }
            UseTree::Name(name) => self.add(&[before, &[name.ident.to_string()]].concat()),
            UseTree::Rename(rename) => self.add(&[before, &[rename.ident.to_string()]].concat()),
            UseTree::Glob(_) => self.add(before),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(before, tree)),
        }
    }

    /// Paths among the tokens of a macro: names with `::` between them.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0_usize;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if colons == 2 || path.is_empty() => path.push(ident.to_string()),
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons = colons.saturating_add(1);
                    continue;
                }
                TokenTree::Ident(ident) => {
                    self.add(&path);
                    path = vec![ident.to_string()];
                }
                TokenTree::Group(group) => {
                    self.add(&path);
                    path.clear();
                    self.add_tokens(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.add(&path);
                    path.clear();
                }
            }
            colons = 0;
        }
        self.add(&path);
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if module.attrs.iter().any(is_for_tests) {
            return;
        }
        self.position.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.position.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 {
            self.add(&names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        self.add_tokens(called.tokens.clone());
        visit::visit_macro(self, called);
    }
}

fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
}

/// The modules of a crate as its README lists them: the first word in backticks of each row of the table.
fn order_of(crate_name: &str) -> Vec<String> {
    let readme = workspace::root().join(crate_name).join("README.md");
    let readme = fs::read_to_string(readme).expect("each crate has a README");
    let (_, table) =
        readme.split_once(HEADING).unwrap_or_else(|| panic!("{crate_name} has no \"{HEADING}\""));
    let rows =
        table.lines().skip_while(|line| !line.starts_with("| `")).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.split('`').nth(1)).map(|name| name.trim_end_matches('/').to_owned()).collect()
}

#[test]
fn modules_import_only_those_that_their_readme_lists_below_them() {
    let sources = sources();
    for crate_name in ["shared", "shared/process", "worker", "web"] {
        let (imports, order) = (Imports::of(crate_name, &sources), order_of(crate_name));
        let against = imports.against(&order);
        assert!(
            against.is_empty(),
            "{crate_name}: imports against the order of README.md:\n{}",
            against.join("\n")
        );
        let listed = order.iter().filter(|name| !imports.of.contains_key(std::slice::from_ref(*name)));
        assert_eq!(
            listed.collect::<Vec<_>>(),
            Vec::<&String>::new(),
            "{crate_name}/README.md lists no module"
        );
    }
}

#[test]
fn no_files_import_each_other_in_a_cycle() {
    let sources = sources();
    for crate_name in ["shared", "shared/process", "worker", "web", "schemas"] {
        let cyclic = Imports::of(crate_name, &sources).cyclic();
        assert!(
            cyclic.is_empty(),
            "{crate_name}: a cycle, or files that depend on one:\n{}",
            cyclic.join("\n")
        );
    }
}

#[test]
fn an_import_that_is_turned_round_is_found() {
    let turned = |path: &str, line: &str| {
        let mut sources = sources();
        let source = sources.iter_mut().find(|source| source.path == path).unwrap();
        source.text.push_str(line);
        let imports = Imports::of("shared", &sources);
        (imports.against(&order_of("shared")), imports.cyclic().is_empty())
    };
    let account = "shared/src/domain/account.rs";
    for line in [
        "\nuse crate::ports::{Store, fault::StoreFault};\n",
        "\nfn f() { crate::ports::queue::RECEIVE_MAX; }\n",
        "\nfn f() { g!(crate::ports::Store) }\n",
        "\nuse super::super::ports;\n",
    ] {
        let (against, _) = turned(account, line);
        assert!(
            against.iter().all(|import| import.starts_with("domain::account imports ports")),
            "{against:?}"
        );
        assert!(!against.is_empty(), "{line} is not found");
    }
    let (against, acyclic) = turned("shared/src/domain/ids.rs", "\nuse super::account::Account;\n");
    assert!(against.is_empty() && !acyclic, "a cycle within one folder: {against:?}");
    let (against, acyclic) = turned(account, "\n#[cfg(test)]\nmod tests { use crate::ports::Store; }\n");
    assert!(against.is_empty() && acyclic, "tests may import everything: {against:?}");
}
