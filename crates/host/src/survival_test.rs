use super::*;

const FEATURES: [Feature; 12] = [
    Feature::Window,
    Feature::Overlay,
    Feature::Events,
    Feature::HostChanges,
    Feature::CoherenceGroup,
    Feature::PosixLocks,
    Feature::Flock,
    Feature::Writeback,
    Feature::Quota,
    Feature::HiddenPaths,
    Feature::Journal,
    Feature::Notifications,
];

#[test]
fn each_feature_has_one_row() {
    for feature in FEATURES {
        let rows = TABLE.iter().filter(|row| row.feature == feature);
        assert_eq!(rows.count(), 1, "{feature:?}");
    }
    assert_eq!(TABLE.len(), FEATURES.len());
}
