//! [`HiddenPaths`]: which names of a share the guest does not see, as configured.
//!
//! The paths of the rules form a tree. A rule holds for everything below its path, up to rules with longer paths.

use std::{
    collections::{HashMap, HashSet},
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
};

/// Rules that hide parts of a share. Paths are relative to the root of the share, with or without a leading slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenPaths {
    pub(super) places: Vec<RuleNode>,
    names: HashSet<Box<[u8]>>,
}

/// A path of a rule, or one on the way there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RuleNode {
    pub(super) path: PathBuf,
    parent: usize,
    rule: Option<Rule>,
    children: HashMap<Box<[u8]>, usize>,
}

/// What holds at a path and below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Hide,
    /// The directory itself is visible.
    HideContents,
    Show,
}

/// Number of the root among the places.
pub(super) const ROOT: usize = 0;

impl Default for HiddenPaths {
    fn default() -> Self {
        Self { places: vec![RuleNode::default()], names: HashSet::new() }
    }
}

impl HiddenPaths {
    /// Returns whether nothing is hidden.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.places.iter().all(|place| matches!(place.rule, None | Some(Rule::Show)))
    }

    /// Hides `path` and everything below it. It stays visible as a directory if something below it is shown.
    pub fn hide(&mut self, path: &Path) {
        self.set(path, Rule::Hide);
    }

    /// Shows the directory `path`, and hides everything below it.
    pub fn hide_contents(&mut self, path: &Path) {
        self.set(path, Rule::HideContents);
    }

    /// Shows `path` and everything below it, within a path that is hidden.
    pub fn show(&mut self, path: &Path) {
        self.set(path, Rule::Show);
    }

    /// Hides every entry with this name, except where a path is shown.
    pub fn hide_name(&mut self, name: &[u8]) {
        self.names.insert(name.into());
    }

    /// Returns whether the entry `name` of the directory at `place` is visible.
    pub(super) fn is_visible(&self, place: usize, name: &[u8]) -> bool {
        match self.child(place, name) {
            Some(child) => self.is_place_visible(child),
            None => !self.is_name_hidden(name) && self.inherited(place) == Rule::Show,
        }
    }

    /// Returns whether what is at `place` is visible.
    pub(super) fn is_place_visible(&self, place: usize) -> bool {
        match self.places[place].rule {
            Some(Rule::Show | Rule::HideContents) => true,
            None if self.inherited(place) == Rule::Show => true,
            Some(Rule::Hide) | None => self.has_visible_child(place),
        }
    }

    /// Returns whether a rule hides the contents of the directory at `place`.
    pub(super) fn hides_contents(&self, place: usize) -> bool {
        self.places[place].rule == Some(Rule::HideContents)
    }

    /// Returns whether entries of this name are hidden where no path says otherwise.
    pub(super) fn is_name_hidden(&self, name: &[u8]) -> bool {
        self.names.contains(name)
    }

    /// Returns the place of the entry `name` of the directory at `place`, if a rule has it in its path.
    pub(super) fn child(&self, place: usize, name: &[u8]) -> Option<usize> {
        self.places[place].children.get(name).copied()
    }

    fn set(&mut self, path: &Path, rule: Rule) {
        let mut at = ROOT;
        for component in path.components() {
            let Component::Normal(name) = component else { continue };
            at = match self.child(at, name.as_bytes()) {
                Some(child) => child,
                None => {
                    let child = self.places.len();
                    let path = self.places[at].path.join(name);
                    self.places.push(RuleNode { path, parent: at, ..RuleNode::default() });
                    self.places[at].children.insert(name.as_bytes().into(), child);
                    child
                }
            };
        }
        self.places[at].rule = Some(rule);
    }

    /// Returns the rule for entries of `place` that have none of their own.
    fn inherited(&self, place: usize) -> Rule {
        match self.places[place].rule {
            Some(rule) => rule,
            None if place == ROOT => Rule::Show,
            None => self.inherited(self.places[place].parent),
        }
    }

    fn has_visible_child(&self, place: usize) -> bool {
        self.places[place].children.values().any(|&child| self.is_place_visible(child))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether each name on the way to `path` is visible.
    fn is_visible(paths: &HiddenPaths, path: &str) -> bool {
        let mut place = Some(ROOT);
        Path::new(path).components().all(|name| {
            let name = name.as_os_str().as_bytes();
            let is_visible = place.map_or(!paths.is_name_hidden(name), |place| paths.is_visible(place, name));
            place = place.and_then(|place| paths.child(place, name));
            is_visible
        })
    }

    #[test]
    fn the_longest_path_decides() {
        let mut paths = HiddenPaths::default();
        assert!(paths.is_empty());
        paths.hide_contents(Path::new("/home/me"));
        paths.show(Path::new("/home/me/.cargo/bin"));
        paths.hide(Path::new("/home/me/.cargo/bin/token"));
        paths.hide(Path::new("etc/shadow"));
        paths.hide_name(b".npmrc");
        assert!(!paths.is_empty());
        for (path, expected) in [
            ("etc", true),
            ("etc/passwd", true),
            ("etc/shadow", false),
            ("home/me", true),
            ("home/me/.ssh", false),
            ("home/me/.cargo", true),
            ("home/me/.cargo/credentials", false),
            ("home/me/.cargo/bin/x/y", true),
            ("home/me/.cargo/bin/token", false),
            ("home/me/.cargo/bin/x/.npmrc", false),
            ("home/other/.ssh", true),
            (".npmrc", false),
        ] {
            assert_eq!(is_visible(&paths, path), expected, "{path}");
        }
    }

    #[test]
    fn a_hidden_directory_with_something_shown_is_a_directory_with_just_that() {
        let mut paths = HiddenPaths::default();
        paths.hide(Path::new("/a/b"));
        assert!(!is_visible(&paths, "a/b"));
        paths.show(Path::new("/a/b/c"));
        paths.show(Path::new("/a/.ssh"));
        paths.hide_name(b".ssh");
        for (path, expected) in [("a/b", true), ("a/b/c", true), ("a/b/d", false), ("a/.ssh", true), ("b/.ssh", false)]
        {
            assert_eq!(is_visible(&paths, path), expected, "{path}");
        }
    }

    #[test]
    fn everything_can_be_hidden_but_the_root_itself() {
        let mut paths = HiddenPaths::default();
        paths.hide(Path::new("/"));
        paths.show(Path::new("x"));
        assert!(is_visible(&paths, "x/y") && !is_visible(&paths, "y"));
    }
}
