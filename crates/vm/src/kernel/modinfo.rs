//! What a module says of itself: the `.modinfo` section, a list of `key=value`, each ended by a NUL.
//!
//! Debian's packages carry no `modules.dep` (it is made at installation), so the order of loading comes from here.

use object::{Object, ObjectSection};

use crate::{Error, Result};

/// The names of the modules that must be loaded before this one. `what` names the module in errors.
pub(super) fn depends(module: &[u8], what: &str) -> Result<Vec<String>> {
    let broken = |reason: String| Error::Guest(format!("module {what}: {reason}"));
    let file = object::File::parse(module).map_err(|error| broken(error.to_string()))?;
    let section = file.section_by_name(".modinfo").ok_or_else(|| broken("no .modinfo".into()))?;
    let data = section.data().map_err(|error| broken(error.to_string()))?;
    Ok(listed(data))
}

fn listed(modinfo: &[u8]) -> Vec<String> {
    modinfo
        .split(|&byte| byte == 0)
        .filter_map(|field| field.strip_prefix(b"depends="))
        .flat_map(|list| list.split(|&byte| byte == b','))
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::listed;

    #[test]
    fn dependencies_are_split_at_commas_and_may_be_absent() {
        assert_eq!(listed(b"license=GPL\0depends=virtio_ring,virtio\0name=x\0"), ["virtio_ring", "virtio"]);
        assert!(listed(b"license=GPL\0depends=\0").is_empty());
        assert!(listed(b"").is_empty());
    }
}
