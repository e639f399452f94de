//! Work on whole trees: unpacking, walking as `git status` does, building, installing by a package manager, removing.

use std::io;

use super::{
    laps::Laps,
    place::{How, Storage},
    source_tree::SourceTree,
    stage::Stage,
};

pub(super) const COUNT: usize = 6;

/// Directories that a compiler searches for a header; the last one has it.
const INCLUDE_DIRS: [&str; 4] = ["include", "usr/include", "vendor/include", "common"];
const HEADERS: usize = 40;
const HEADERS_PER_SOURCE: usize = 8;
const HEADER_BYTES: usize = 2048;

pub(super) fn run(stage: &mut Stage<'_>) -> io::Result<()> {
    let count = stage.params.tree_files as usize;
    let tree = SourceTree::new(stage.random(3), count);
    let content = vec![0x2f; content_len(&tree)];
    let top = stage.path("trees");
    let source = format!("{top}/source");
    stage.place().create_dir_all(&source)?;

    stage.measure("unpack_tree", |place, laps| unpack(place, &source, &tree, &content, laps))?;
    stage.measure_cold("walk_tree_cold", |place, laps| walk(place, &source, laps))?;
    stage.measure("walk_tree_warm", |place, laps| walk(place, &source, laps))?;
    for dir in INCLUDE_DIRS {
        stage.place().create_dir_all(&format!("{top}/{dir}"))?;
    }
    for header in 0..HEADERS {
        stage.place().write_file(&format!("{top}/{}", header_path(header)), &content[..HEADER_BYTES])?;
    }
    stage.place().create_dir_all(&format!("{top}/build"))?;
    stage.measure_cold("build_tree_cold", |place, laps| build(place, &top, &tree, laps))?;
    let modules = format!("{top}/modules");
    stage.place().create_dir_all(&modules)?;
    stage.measure("install_packages", |place, laps| install(place, &modules, &tree, &content, laps))?;
    stage.measure_cold("remove_tree_cold", |place, laps| remove(place, &source, laps))?;
    stage.place().remove_dir_all(&top)
}

/// Unpacks like tar: each directory, then each file with its contents and mode.
fn unpack(place: &dyn Storage, top: &str, tree: &SourceTree, content: &[u8], laps: &mut Laps) -> io::Result<()> {
    for package in &tree.packages {
        let dir = format!("{top}/{}", package.dir);
        place.create_dir(&dir)?;
        laps.lap(0);
        for inner in &package.dirs {
            place.create_dir(&format!("{dir}/{inner}"))?;
            laps.lap(0);
        }
        for (file, size) in &package.files {
            let path = format!("{dir}/{file}");
            place.write_file(&path, &content[..*size])?;
            place.set_mode(&path, 0o644)?;
            laps.lap(*size);
        }
    }
    Ok(())
}

/// Walks like git looking for changes: reads every directory and gets the attributes of every file.
fn walk(place: &dyn Storage, dir: &str, laps: &mut Laps) -> io::Result<()> {
    let mut dirs = Vec::new();
    place.read_dir(dir, &mut |name, is_dir| {
        let path = format!("{dir}/{name}");
        if is_dir {
            dirs.push(path);
            return Ok(());
        }
        place.stat(&path)?;
        laps.lap(0);
        Ok(())
    })?;
    dirs.iter().try_for_each(|dir| walk(place, dir, laps))
}

/// Builds like a compiler: reads a source and its headers, which it searches in one directory after another, then
/// writes the object under a temporary name and renames it.
fn build(place: &dyn Storage, top: &str, tree: &SourceTree, laps: &mut Laps) -> io::Result<()> {
    /// One in this many files is compiled; the others are only walked.
    const SHARE: usize = 4;
    let mut buffer = vec![0; content_len(tree)];
    for (number, (file, size)) in tree.files().enumerate().filter(|(number, _)| number % SHARE == 0) {
        place.open(&format!("{top}/source/{file}"), How::READ)?.read_exact_at(&mut buffer[..size], 0)?;
        for header in (0..HEADERS_PER_SOURCE).map(|step| (number + step * step) % HEADERS) {
            for dir in INCLUDE_DIRS {
                match place.open(&format!("{top}/{dir}/header{header}.h"), How::READ) {
                    Ok(file) => file.read_exact_at(&mut buffer[..HEADER_BYTES], 0)?,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let object = format!("{top}/build/object{number}.o");
        let partial = format!("{object}.part");
        place.write_file(&partial, &buffer[..size])?;
        place.rename(&partial, &object)?;
        laps.lap(size);
    }
    Ok(())
}

/// Installs like npm: unpacks a package into a directory with a temporary name and renames that.
fn install(place: &dyn Storage, top: &str, tree: &SourceTree, content: &[u8], laps: &mut Laps) -> io::Result<()> {
    for package in &tree.packages {
        let staging = format!("{top}/.{}-staging", package.dir);
        place.create_dir(&staging)?;
        for inner in &package.dirs {
            place.create_dir(&format!("{staging}/{inner}"))?;
        }
        for (file, size) in &package.files {
            place.write_file(&format!("{staging}/{file}"), &content[..*size])?;
            laps.lap(*size);
        }
        place.rename(&staging, &format!("{top}/{}", package.dir))?;
    }
    Ok(())
}

/// Removes like `rm -r`.
fn remove(place: &dyn Storage, dir: &str, laps: &mut Laps) -> io::Result<()> {
    let mut entries = Vec::new();
    place.read_dir(dir, &mut |name, is_dir| {
        entries.push((format!("{dir}/{name}"), is_dir));
        Ok(())
    })?;
    for (path, is_dir) in entries {
        if is_dir {
            remove(place, &path, laps)?;
        } else {
            place.remove_file(&path)?;
            laps.lap(0);
        }
    }
    place.remove_dir(dir)?;
    laps.lap(0);
    Ok(())
}

fn header_path(header: usize) -> String {
    format!("{}/header{header}.h", INCLUDE_DIRS[INCLUDE_DIRS.len() - 1])
}

fn content_len(tree: &SourceTree) -> usize {
    tree.files().map(|(_, size)| size).max().unwrap_or(0).max(HEADER_BYTES)
}
