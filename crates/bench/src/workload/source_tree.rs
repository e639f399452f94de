//! A tree like those of source code and installed packages, generated from a seed: always the same directories, names
//! and sizes.

use fastrand::Rng;

/// Average number of files in a package, as in a large `node_modules`.
const FILES_PER_PACKAGE: usize = 25;
const FOLDERS: [&str; 5] = ["", "lib", "lib/internal", "dist", "test/fixtures"];
/// File sizes are distributed evenly over the base-2 logarithms in this range.
const SIZE_LOG2: std::ops::Range<f64> = 6.0..14.0;

/// The contents of a tree; paths are relative to its root.
pub(super) struct SourceTree {
    /// The packages, in order.
    pub(super) packages: Vec<Package>,
}

/// A directory with subdirectories and files.
pub(super) struct Package {
    /// Its path.
    pub(super) dir: String,
    /// Subdirectories, parents first, relative to the package.
    pub(super) dirs: Vec<String>,
    /// Files: the path relative to the package, and the size.
    pub(super) files: Vec<(String, usize)>,
}

impl SourceTree {
    /// Generates a tree of `files` files.
    pub(super) fn new(mut random: Rng, files: usize) -> Self {
        let mut packages = Vec::new();
        let mut left = files;
        while left > 0 {
            let count = random.usize(1..2 * FILES_PER_PACKAGE).min(left);
            left -= count;
            packages.push(Package::new(&mut random, packages.len(), count));
        }
        Self { packages }
    }

    /// Returns the paths of all files with their sizes.
    pub(super) fn files(&self) -> impl Iterator<Item = (String, usize)> {
        self.packages
            .iter()
            .flat_map(|package| package.files.iter().map(|(file, size)| (format!("{}/{file}", package.dir), *size)))
    }
}

impl Package {
    fn new(random: &mut Rng, number: usize, count: usize) -> Self {
        let folders = &FOLDERS[..random.usize(1..=FOLDERS.len())];
        let mut dirs = Vec::new();
        for folder in folders.iter().filter(|folder| !folder.is_empty()) {
            let ends = folder.match_indices('/').map(|(end, _)| end).chain([folder.len()]);
            for dir in ends.map(|end| folder[..end].to_owned()) {
                if !dirs.contains(&dir) {
                    dirs.push(dir);
                }
            }
        }
        let file = |random: &mut Rng, file| {
            let folder = folders[random.usize(..folders.len())];
            let slash = if folder.is_empty() { "" } else { "/" };
            let size = (SIZE_LOG2.start + random.f64() * (SIZE_LOG2.end - SIZE_LOG2.start)).exp2() as usize;
            (format!("{folder}{slash}module{file}.js"), size)
        };
        let files = (0..count).map(|number| file(random, number)).collect();
        Self { dir: format!("package{number}"), dirs, files }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_tree_and_all_its_files_have_directories() {
        let (one, two) = (SourceTree::new(Rng::with_seed(7), 1000), SourceTree::new(Rng::with_seed(7), 1000));
        assert_eq!(one.files().count(), 1000);
        assert!(one.files().eq(two.files()));
        for package in &one.packages {
            let is_there =
                |path: &str| path.rsplit_once('/').is_none_or(|(dir, _)| package.dirs.iter().any(|d| d == dir));
            assert!(package.files.iter().all(|(file, _)| is_there(file)));
            assert!(package.dirs.iter().all(|dir| is_there(dir)));
        }
    }
}
