//! A tree of directories, made from the top and removed from the leaves.

use std::{fs, io, path::PathBuf};

use super::stage::Stage;

pub(super) const COUNT: usize = 2;

/// Directories in one directory: three levels for a thousand, as source trees have them.
const FAN_OUT: usize = 10;

pub(super) fn run<W: io::Write>(stage: &mut Stage<W>) -> io::Result<()> {
    let top = stage.path("tree");
    fs::create_dir_all(&top)?;
    let mut dirs: Vec<PathBuf> = vec![top];
    for number in 1..=stage.params.tree_dirs as usize {
        dirs.push(dirs[(number - 1) / FAN_OUT].join(format!("d{number}")));
    }

    stage.measure("mkdir_tree", |laps| {
        for dir in &dirs[1..] {
            fs::create_dir(dir)?;
            laps.lap(0);
        }
        Ok(())
    })?;
    stage.measure("rmdir_tree", |laps| {
        for dir in dirs[1..].iter().rev() {
            fs::remove_dir(dir)?;
            laps.lap(0);
        }
        Ok(())
    })?;
    fs::remove_dir(&dirs[0])
}
