//! Commits and discards: checked first, written down, and done.
//!
//! Only a commit goes on with a commit that was stopped. Whatever prevents that is no reason to refuse other commands:
//! what is not committed is still in the upper layer, so the commit that was stopped is then forgotten.

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
    walk::Found,
};

/// What a commit has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// The changes that are in the directory now.
    pub sum: Sum,
    /// Files that have lost a set-user-id or set-group-id bit.
    pub without_set_id: u64,
}

impl Committed {
    fn and(self, other: Self) -> Self {
        let sum = Sum {
            files: self.sum.files + other.sum.files,
            directories: self.sum.directories + other.sum.directories,
            bytes: self.sum.bytes.saturating_add(other.sum.bytes),
        };
        Self { sum, without_set_id: self.without_set_id + other.without_set_id }
    }
}

impl Overlay {
    /// Writes the changes at `paths`, or all, into the directory, and removes them from the overlay.
    ///
    /// `paths` begin at the directory. `is_forced` overrides what the host has changed. A commit that was stopped is
    /// finished first, but never by force; [`Overlay::remark`] says what became of it.
    ///
    /// # Errors
    /// [`Error::Conflicts`], [`Error::Replaced`] without `is_forced`, [`Error::Missing`] and [`Error::Device`], if
    /// nothing was changed; others in the middle, and then the next commit finishes this one.
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
        let mut paths = self.selected(paths)?;
        match self.check_origin() {
            Err(Error::Replaced(_)) if is_forced => {}
            checked => checked?,
        }
        let resumed = self.resume(before)?;
        if resumed.is_some() && !self.layers().is_dir() {
            return Ok(resumed.map(|(_, committed)| committed).unwrap_or_default());
        }
        let mut found = self.found(&paths)?;
        let mut unchanged = paths.clone();
        unchanged.retain(|path| !found.changes.iter().any(|change| change.path.starts_with(path)));
        if let Some((done, committed)) = &resumed {
            unchanged.retain(|path| !covers(done, path));
            if !paths.is_empty() && unchanged.is_empty() {
                paths.retain(|path| found.changes.iter().any(|change| change.path.starts_with(path)));
                // All that was named is committed.
                if paths.is_empty() {
                    return Ok(*committed);
                }
                found = self.found(&paths)?;
            }
        }
        if let Some(path) = unchanged.into_iter().next() {
            return Err(Error::Unchanged(path));
        }
        let intent = self.intent(&paths)?;
        let committed = self.check(&paths, &found, is_forced, false)?;
        before("write the intent", Path::new(""))?;
        intent.write(&self.intent_path())?;
        self.finish(intent, &found, before)?;
        Ok(resumed.map_or(committed, |(_, earlier)| earlier.and(committed)))
    }

    /// Throws the changes at `paths`, or all, away. `paths` begin at the directory. A commit that was stopped is not
    /// finished.
    ///
    /// # Errors
    /// [`Error::Unchanged`] and [`Error::Whole`], if nothing was changed.
    pub fn discard(&mut self, paths: &[PathBuf]) -> Result<Option<Sum>> {
        let paths = self.selected(paths)?;
        self.drop_commit();
        for path in &paths {
            let upper = self.upper()?;
            if let Some(above) = clear::whole(&upper, path)? {
                return Err(Error::Whole { path: path.clone(), above });
            }
            if upper.node(path)?.is_none() {
                return Err(Error::Unchanged(path.clone()));
            }
        }
        // What cannot be compared can still be discarded.
        let sum = self.found(&paths).map(|found| Sum::of(&found.changes)).ok();
        let intent = Intent::new(false, &paths)?;
        // Everything goes at once: this needs neither a note nor space for one.
        if !paths.is_empty() {
            intent.write(&self.intent_path())?;
        }
        self.finish(intent, &Found::default(), &mut |_, _| Ok(()))?;
        Ok(sum)
    }

    /// Removes from the upper layer what a command that was stopped has left there. A commit that has not written all
    /// changes yet stays as it is. Returns a remark, if there is anything to say.
    pub(crate) fn recover(&mut self) -> Option<String> {
        let host = self.directory().display().to_string();
        let cleared = clear::delete(&self.gone_path());
        let remark = match Intent::read(&self.intent_path()) {
            Ok(None) => None,
            Ok(Some(intent)) if !intent.is_applied => Some(format!(
                "a commit in {host} was stopped; `transom commit` finishes it, `transom discard` throws away what is \
                 left of it"
            )),
            Ok(Some(intent)) => {
                let what = if intent.is_commit { "commit" } else { "discard" };
                Some(match self.finish(intent, &Found::default(), &mut |_, _| Ok(())) {
                    Ok(()) => format!("finished the {what} in {host} that was stopped"),
                    Err(error) => self.forgotten(&format!("the {what}"), &error),
                })
            }
            Err(error) => Some(self.forgotten("a command", &error)),
        };
        remark.or_else(|| Some(cleared.err()?.to_string()))
    }

    /// Finishes a commit that was stopped. Returns its paths and what it had left to write.
    fn resume(&mut self, before: &mut Before<'_>) -> Result<Option<(Vec<PathBuf>, Committed)>> {
        let Some(intent) = Intent::read(&self.intent_path())? else { return Ok(None) };
        let paths = intent.paths();
        match self.resume_intent(intent, before) {
            Ok(committed) => {
                self.set_remark(format!("finished the commit in {} that was stopped", self.directory().display()));
                Ok(Some((paths, committed)))
            }
            Err(error) => {
                self.drop_commit();
                let remark = self.forgotten("a commit", &error);
                self.set_remark(remark);
                Ok(None)
            }
        }
    }

    fn resume_intent(&mut self, intent: Intent, before: &mut Before<'_>) -> Result<Committed> {
        apply::remove_unfinished(&self.lower()?, Path::new(&intent.unfinished))?;
        let found = self.found(&intent.paths())?;
        let committed = self.check(&intent.paths(), &found, false, true)?;
        self.finish(intent, &found, before)?;
        Ok(committed)
    }

    /// Forgets a command that was stopped. Both layers together are what the guest saw: nothing is lost.
    fn forgotten(&self, what: &str, error: &Error) -> String {
        let more = self.forget_intent().err().map_or(String::new(), |error| format!("; {error}"));
        let host = self.directory().display();
        format!(
            "{what} in {host} was stopped and cannot be finished: {error}; what is left of it is still in the \
             overlay{more}"
        )
    }

    /// Forgets a commit that was stopped, if there is one, and removes its unfinished files.
    pub(crate) fn drop_commit(&mut self) {
        let Ok(Some(intent)) = Intent::read(&self.intent_path()) else { return };
        let removed = self.lower().and_then(|lower| {
            let path = Path::new(&intent.unfinished);
            if intent.is_commit { apply::remove_unfinished(&lower, path) } else { Ok(()) }
        });
        let host = self.directory().display();
        let mut remark =
            format!("a commit in {host} was stopped and is not finished: what it has written stays, and the rest not");
        for error in [removed.err(), self.forget_intent().err()].into_iter().flatten() {
            remark.push_str(&format!("; {error}"));
        }
        self.set_remark(remark);
    }

    /// Returns a commit with a name for its unfinished files that neither layer has.
    fn intent(&self, paths: &[PathBuf]) -> Result<Intent> {
        let (upper, lower) = (self.upper()?, self.lower()?);
        loop {
            let intent = Intent::new(true, paths)?;
            let name = Path::new(&intent.unfinished);
            if upper.node(name)?.is_none() && lower.node(name)?.is_none() {
                return Ok(intent);
            }
        }
    }

    /// Compares both layers at `paths`, or all.
    fn found(&self, paths: &[PathBuf]) -> Result<Found> {
        let mut found = self.compared()?;
        if !paths.is_empty() {
            let Found { changes, directories, leaders, .. } = &mut found;
            // A directory above that is new comes along.
            let is_above = |path: &Path| paths.iter().any(|selected| selected.starts_with(path));
            changes.retain(|change| covers(paths, &change.path) || is_above(&change.path) && change.before.is_none());
            let changed: BTreeSet<_> = changes.iter().map(|change| &change.path).collect();
            directories.retain(|path| covers(paths, path) || changed.contains(path));
            *leaders = reelected(std::mem::take(leaders), paths);
        }
        Ok(found)
    }

    fn check(&self, paths: &[PathBuf], found: &Found, is_forced: bool, is_resumed: bool) -> Result<Committed> {
        let (upper, lower) = (self.upper()?, self.lower()?);
        for path in paths {
            let Some(above) = clear::whole(&upper, path)? else { continue };
            // Something else has to go before the directory above can be made.
            if lower.meta(&above)?.is_some_and(|meta| !meta.is_directory()) {
                return Err(Error::Whole { path: path.clone(), above });
            }
        }
        if let Some(change) =
            found.changes.iter().find(|change| change.after.is_some_and(|meta| meta.kind == Kind::Device))
        {
            return Err(Error::Device { path: change.path.clone() });
        }
        let hidden = self.hidden()?;
        if let Some(change) = found.changes.iter().find(|change| hidden.covers(&change.path)) {
            return Err(Error::Hidden { path: change.path.clone() });
        }
        let conflicts = conflicts(&found.changes, &self.record()?, is_resumed);
        if !conflicts.is_empty() && !is_forced {
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
