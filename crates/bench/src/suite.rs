//! The suites: which workloads, which sizes, and what the sizes are scaled from.

use crate::workload::{Group, Params};

/// A suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Suite {
    /// A first look: small files, blocks, trees; a minute
    Quick,
    /// The tables of the original virtio-fs and DAX proposals: smallfile, fio, page faults
    Seeds,
    /// Small files, directories, fsync, and whole trees: unpacked, walked, built, installed, removed
    Small,
    /// 4 KiB and 1 MiB, sequential and random, cached and direct, and through mappings
    Io,
    /// 1 to 16 jobs, 1,000 files to a million, 1 to 8 guests
    Scale,
    /// All except quick
    All,
}

/// The contents of a suite.
pub struct Contents {
    /// The parts, each of which gets a guest of its own.
    pub parts: Vec<Params>,
    /// The default number of rounds.
    pub rounds: u32,
    /// How sizes were scaled, and what is not measured.
    pub notes: Vec<String>,
}

impl Contents {
    /// Removes `groups` and notes the reason.
    pub fn leave_out(&mut self, groups: &[Group], reason: &str) {
        for part in &mut self.parts {
            for group in part.groups.extract_if(.., |group| groups.contains(group)) {
                self.notes.push(format!("not measured: {}: {reason}", group.title()));
            }
        }
        self.parts.retain(|part| !part.groups.is_empty());
    }
}

/// The sizes of the original measurements, if ours are smaller.
mod original {
    pub(super) const SMALLFILE_FILES: u32 = 2048;
    pub(super) const SMALLFILE_KIB: u32 = 1024;
    pub(super) const FIO_MIB: u32 = 8192;
    pub(super) const ENTRIES_MIB: u32 = 2048;
    pub(super) const INSTALLED_FILES: u32 = 50_000;
}

impl Suite {
    /// Returns the name on the command line.
    pub fn name(self) -> String {
        crate::name_of(&self)
    }

    /// Returns the suite's contents, restricted to the groups `only` if it is not empty, with every count of files and
    /// operations multiplied by `scale`.
    ///
    /// # Errors
    /// If the suite has none of these groups.
    pub fn contents(self, scale: f64, only: &[Group]) -> anyhow::Result<Contents> {
        let mut notes = Vec::new();
        let mut wanted = self.groups();
        if !only.is_empty() {
            wanted.iter_mut().for_each(|groups| groups.retain(|group| only.contains(group)));
            wanted.retain(|groups| !groups.is_empty());
        }
        if wanted.is_empty() {
            let names: Vec<_> = self.groups().concat().iter().map(crate::name_of).collect();
            anyhow::bail!("the suite {} has no such group, but {}", self.name(), names.join(", "));
        }
        let has = |group| wanted.iter().flatten().any(|other| *other == group);
        if has(Group::FioQueue) {
            notes.push(
                "not measured: fio's libaio engine itself: 16 threads for each job stand for its \
                 queue, and transom bench fio \
                 runs fio"
                    .to_owned(),
            );
        }
        if has(Group::Faults) {
            notes.push("not measured: faults by MAP_SYNC, which need a host file on persistent memory".to_owned());
        }
        if only.is_empty() && matches!(self, Self::Seeds | Self::All) {
            notes.push("not measured: DMA operations by themselves: transom bench library has them".to_owned());
        }
        let parts = wanted.into_iter().map(|groups| {
            let is_guests = groups == [Group::Guests];
            let params = match self {
                Self::Quick => Params { groups, ..quick() },
                _ if is_guests => Params { groups, jobs: vec![1, 2, 4, 8], ..Params::default() },
                _ => Params { groups, ..Params::default() },
            };
            let params = scaled(params, scale);
            scales(&params, scale, &mut notes);
            params
        });
        let parts = parts.collect();
        Ok(Contents { parts, rounds: if self == Self::Quick { 7 } else { 5 }, notes })
    }

    fn groups(self) -> Vec<Vec<Group>> {
        let seeds =
            vec![Group::Smallfile, Group::FioPsync, Group::FioQueue, Group::FioMmap, Group::Faults, Group::Entries];
        let small = vec![Group::SmallFiles, Group::Tree, Group::Synced, Group::Trees];
        let io = vec![Group::Blocks, Group::Mapped];
        let scale = vec![Group::Jobs, Group::Breadth];
        let guests = vec![Group::Guests];
        match self {
            Self::Quick => vec![vec![Group::SmallFiles, Group::Blocks, Group::Trees]],
            Self::Seeds => vec![seeds],
            Self::Small => vec![small],
            Self::Io => vec![io],
            Self::Scale => vec![scale, guests],
            Self::All => vec![small, io, seeds, scale, guests],
        }
    }
}

fn quick() -> Params {
    Params {
        files: 500,
        blocks_mib: 32,
        block_ops: 4096,
        large_passes: 2,
        tree_files: 800,
        settle_ms: 5,
        ..Params::default()
    }
}

fn scaled(params: Params, scale: f64) -> Params {
    let times = |count: u32| ((f64::from(count) * scale) as u32).max(1);
    Params {
        files: times(params.files),
        tree_dirs: times(params.tree_dirs),
        block_ops: times(params.block_ops),
        synced_ops: times(params.synced_ops),
        tree_files: times(params.tree_files),
        smallfile_files: times(params.smallfile_files),
        entries_mib: times(params.entries_mib),
        breadth: params.breadth.iter().map(|count| times(*count)).collect(),
        ..params
    }
}

/// Notes how the sizes of a part, already multiplied by `scale`, relate to the original ones.
fn scales(params: &Params, scale: f64, notes: &mut Vec<String>) {
    let has = |group| params.groups.contains(&group);
    if has(Group::Smallfile) {
        let (files, kib) = (params.smallfile_files, params.smallfile_kib);
        let share = f64::from(original::SMALLFILE_FILES) * f64::from(original::SMALLFILE_KIB)
            / f64::from(files)
            / f64::from(kib);
        notes.push(format!(
            "scaled: smallfile has 8 threads with {files} files of {kib} KiB each; \
             originally {} of {} KiB, {share:.0} times as much",
            original::SMALLFILE_FILES,
            original::SMALLFILE_KIB
        ));
    }
    if has(Group::FioPsync) {
        notes.push(format!(
            "scaled: fio's jobs do {} operations of 4 KiB in files of {} MiB; originally in files of {} MiB, by time",
            params.block_ops,
            params.fio_mib,
            original::FIO_MIB
        ));
    }
    if has(Group::Entries) {
        let (mib, whole) = (params.entries_mib, original::ENTRIES_MIB);
        notes.push(format!(
            "scaled: the file for page-table entries has {mib} MiB; originally {whole} MiB, --scale {:.1}",
            scale * f64::from(whole) / f64::from(mib)
        ));
    }
    if has(Group::Trees) {
        let (files, many) = (params.tree_files, original::INSTALLED_FILES);
        notes.push(format!(
            "scaled: trees have {files} files; --scale {:.1} has {many}",
            scale * f64::from(many) / f64::from(files)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_has_every_group_once_and_guests_by_themselves() {
        let contents = Suite::All.contents(1.0, &[]).unwrap();
        let groups: Vec<Group> = contents.parts.iter().flat_map(|part| part.groups.clone()).collect();
        assert!(Group::ALL.iter().all(|group| groups.iter().filter(|other| *other == group).count() == 1));
        assert!(contents.parts.iter().any(|part| part.groups == [Group::Guests]));
    }

    #[test]
    fn what_is_left_out_is_told_and_leaves_no_empty_part() {
        let mut contents = Suite::Scale.contents(1.0, &[]).unwrap();
        contents.leave_out(&[Group::Guests, Group::Breadth], "there is one guest");
        assert_eq!(contents.parts.iter().map(|part| part.groups.clone()).collect::<Vec<_>>(), [[Group::Jobs]]);
        assert!(contents.notes.contains(&"not measured: 1 to 8 guests: there is one guest".to_owned()));
    }

    #[test]
    fn groups_are_kept_alone_and_none_is_an_error() {
        let contents = Suite::All.contents(1.0, &[Group::Guests, Group::Faults]).unwrap();
        assert_eq!(
            contents.parts.iter().map(|part| part.groups.clone()).collect::<Vec<_>>(),
            [[Group::Faults], [Group::Guests]]
        );
        assert!(!contents.notes.iter().any(|note| note.contains("smallfile")), "{:?}", contents.notes);
        assert!(Suite::Quick.contents(1.0, &[Group::Guests]).is_err());
    }

    #[test]
    fn what_is_scaled_is_told_with_the_original() {
        let notes = Suite::Seeds.contents(0.5, &[]).unwrap().notes.join("\n");
        assert!(notes.contains("32 files of 64 KiB") && notes.contains("1024 times as much"), "{notes}");
        assert!(notes.contains("not measured: fio's libaio") && notes.contains("not measured: DMA"), "{notes}");
    }
}
