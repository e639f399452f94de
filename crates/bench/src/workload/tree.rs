//! A tree of directories, created from the root and removed from the leaves.

use std::io;

use super::stage::Stage;

pub(super) const COUNT: usize = 2;

/// Subdirectories of a directory: three levels for a thousand directories, as in source trees.
const FAN_OUT: usize = 10;

pub(super) fn run(stage: &mut Stage<'_>) -> io::Result<()> {
    let mut dirs = vec![stage.path("tree")];
    stage.place().create_dir_all(&dirs[0])?;
    for number in 1..=stage.params.tree_dirs as usize {
        dirs.push(format!("{}/d{number}", dirs[(number - 1) / FAN_OUT]));
    }

    stage.measure("mkdir_tree", |place, laps| {
        for dir in &dirs[1..] {
            place.create_dir(dir)?;
            laps.lap(0);
        }
        Ok(())
    })?;
    stage.measure("rmdir_tree", |place, laps| {
        for dir in dirs[1..].iter().rev() {
            place.remove_dir(dir)?;
            laps.lap(0);
        }
        Ok(())
    })?;
    stage.place().remove_dir(&dirs[0])
}
