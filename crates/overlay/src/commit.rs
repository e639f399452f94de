//! Commits and discards: checked first, written down, done, and finished by the next command if they were stopped.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

use crate::{
    Error, Kind, Overlay, Result, Sum,
    apply::{self, Apply, Before},
    clear,
    conflict::conflicts,
    intent::{Intent, covers},
    meta::SET_ID,
    walk::{Found, walk},
};

/// What a commit has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// The changes that are in the directory now.
    pub sum: Sum,
    /// Files that have lost a set-user-id or set-group-id bit.
    pub without_set_id: u64,
}

impl Overlay {
    /// Writes the changes at `paths`, or all, into the directory, and removes them from the overlay.
    ///
    /// `paths` begin at the directory. `is_forced` overrides what the host has changed.
    ///
    /// # Errors
    /// [`Error::Conflicts`] and [`Error::Device`], if nothing was changed; others in the middle, and then the next
    /// command finishes the commit.
    pub fn commit(&mut self, paths: &[PathBuf], is_forced: bool) -> Result<Committed> {
        self.commit_stepwise(paths, is_forced, &mut |_, _| Ok(()))
    }

    /// As `commit`; calls `before` before each step.
    pub(crate) fn commit_stepwise(
        &mut self,
        paths: &[PathBuf],
        is_forced: bool,
        before: &mut Before<'_>,
    ) -> Result<Committed> {
        let paths = self.selected(paths)?;
        let found = self.found(&paths)?;
        for path in &paths {
            let has_changes = found.changes.iter().any(|change| change.path.starts_with(path));
            if !has_changes {
                return Err(Error::Unchanged(path.clone()));
            }
        }
        let intent = Intent::new(true, is_forced, &paths);
        let committed = self.check(&intent, &found, false)?;
        before("write the intent", Path::new(""))?;
        intent.write(&self.intent_path())?;
        self.finish(intent, &found, before)?;
        Ok(committed)
    }

    /// Throws the changes at `paths`, or all, away. `paths` begin at the directory.
    ///
    /// # Errors
    /// [`Error::Unchanged`] and [`Error::Whole`], if nothing was changed.
    pub fn discard(&mut self, paths: &[PathBuf]) -> Result<Sum> {
        let paths = self.selected(paths)?;
        let upper = self.upper()?;
        for path in &paths {
            if let Some(above) = clear::whole(&upper, path)? {
                return Err(Error::Whole { path: path.clone(), above });
            }
            if upper.node(path)?.is_none() {
                return Err(Error::Unchanged(path.clone()));
            }
        }
        // What cannot be compared can still be discarded.
        let sum = self.found(&paths).map(|found| Sum::of(&found.changes)).unwrap_or_default();
        let intent = Intent::new(false, false, &paths);
        intent.write(&self.intent_path())?;
        self.finish(intent, &Found::default(), &mut |_, _| Ok(()))?;
        Ok(sum)
    }

    /// Finishes what a command has begun that was stopped. Returns a remark about it, if there was one.
    pub(crate) fn recover(&mut self) -> Result<Option<String>> {
        clear::delete(&self.gone_path())?;
        let Some(intent) = Intent::read(&self.intent_path())? else { return Ok(None) };
        let host = self.directory().display().to_string();
        if intent.is_applied {
            let what = if intent.is_commit { "commit" } else { "discard" };
            self.finish(intent, &Found::default(), &mut |_, _| Ok(()))?;
            return Ok(Some(format!("finished the {what} in {host} that was stopped")));
        }
        apply::remove_unfinished(&self.lower()?, Path::new(&intent.unfinished))?;
        let found = self.found(&intent.paths())?;
        match self.check(&intent, &found, true) {
            Err(error @ (Error::Conflicts(_) | Error::Device { .. })) => {
                // Both layers together are what the guest saw: nothing is lost, and the rest is as before the commit.
                self.forget_intent()?;
                Ok(Some(format!("a commit in {host} was stopped, and what is left of it cannot be finished: {error}")))
            }
            Err(error) => Err(error),
            Ok(_) => {
                self.finish(intent, &found, &mut |_, _| Ok(()))?;
                Ok(Some(format!("finished the commit in {host} that was stopped")))
            }
        }
    }

    /// Compares both layers at `paths`, or all.
    fn found(&self, paths: &[PathBuf]) -> Result<Found> {
        let mut found = walk(&self.upper()?, &self.lower()?)?;
        if !paths.is_empty() {
            let Found { changes, directories, leaders } = &mut found;
            // A directory above that is new comes along.
            let is_above = |path: &Path| paths.iter().any(|selected| selected.starts_with(path));
            changes.retain(|change| covers(paths, &change.path) || is_above(&change.path) && change.before.is_none());
            let changed: BTreeSet<_> = changes.iter().map(|change| &change.path).collect();
            directories.retain(|path| covers(paths, path) || changed.contains(path));
            *leaders = reelected(std::mem::take(leaders), paths);
        }
        Ok(found)
    }

    fn check(&self, intent: &Intent, found: &Found, is_resumed: bool) -> Result<Committed> {
        let (upper, lower) = (self.upper()?, self.lower()?);
        for path in intent.paths() {
            let Some(above) = clear::whole(&upper, &path)? else { continue };
            // Something else has to go before the directory above can be made.
            if lower.meta(&above)?.is_some_and(|meta| !meta.is_directory()) {
                return Err(Error::Whole { path, above });
            }
        }
        if let Some(change) =
            found.changes.iter().find(|change| change.after.is_some_and(|meta| meta.kind == Kind::Device))
        {
            return Err(Error::Device { path: change.path.clone() });
        }
        let conflicts = conflicts(&found.changes, &self.record()?, is_resumed);
        if !conflicts.is_empty() && !intent.is_forced {
            return Err(Error::Conflicts(conflicts));
        }
        let loses_bits = |change: &&crate::Change| {
            change.after.is_some_and(|meta| meta.kind == Kind::File && meta.mode & SET_ID != 0)
        };
        let without_set_id = found.changes.iter().filter(loses_bits).count() as u64;
        Ok(Committed { sum: Sum::of(&found.changes), without_set_id })
    }

    /// Does what is left of `intent`, which has been written.
    fn finish(&mut self, mut intent: Intent, found: &Found, before: &mut Before<'_>) -> Result<()> {
        if !intent.is_applied {
            let (upper, lower) = (self.upper()?, self.lower()?);
            Apply::new(&upper, &lower, Path::new(&intent.unfinished), before).run(found)?;
            before("write to the disk", Path::new(""))?;
            lower.sync()?;
            intent.is_applied = true;
            intent.write(&self.intent_path())?;
        }
        before("clear the upper layer", Path::new(""))?;
        let paths = intent.paths();
        if paths.is_empty() {
            self.leave()?;
        } else {
            let trash = self.trash()?;
            clear::move_away(&self.upper()?, &paths, &trash)?;
            before("delete", Path::new(""))?;
            clear::delete(&trash)?;
            self.forget_intent()?;
        }
        clear::delete(&self.gone_path())
    }

    /// Returns `paths` without `.`, relative to the directory, none inside another.
    fn selected(&self, paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let mut selected = Vec::new();
        for path in paths {
            let relative = path.strip_prefix(self.directory()).unwrap_or(path);
            let parts = relative.components().filter(|part| *part != Component::CurDir);
            let plain: PathBuf = parts.clone().collect();
            if parts.clone().any(|part| !matches!(part, Component::Normal(_))) {
                return Err(Error::Outside(path.clone()));
            }
            // The directory itself stands for everything.
            if plain.as_os_str().is_empty() {
                return Ok(Vec::new());
            }
            selected.push(plain);
        }
        selected.sort();
        selected.dedup_by(|later, earlier| later.starts_with(&*earlier));
        Ok(selected)
    }
}

/// Returns the names of files with several, each with the first of those that are selected.
fn reelected(leaders: BTreeMap<PathBuf, PathBuf>, selected: &[PathBuf]) -> BTreeMap<PathBuf, PathBuf> {
    let mut elected: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    let mut remaining = BTreeMap::new();
    for (name, leader) in leaders.into_iter().filter(|(name, _)| covers(selected, name)) {
        if covers(selected, &leader) {
            remaining.insert(name, leader);
        } else if let Some(leader) = elected.get(&leader) {
            remaining.insert(name, leader.clone());
        } else {
            elected.insert(leader, name);
        }
    }
    remaining
}
