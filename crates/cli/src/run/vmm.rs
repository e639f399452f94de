//! Which kernel a guest boots, and in what.

use transom_vm::{Accelerator, Error, Kernel, Qemu, Result, Share, Vmm, tools::Tools, uml::Uml};

use super::{
    Run,
    values::{Accel, VmmName},
};

impl Run {
    /// Finds or fetches the kernel and the virtual machine monitor.
    ///
    /// # Errors
    ///
    /// Returns an error if one of them is not available, or cannot do what the shares need.
    pub(super) fn kernel_and_vmm(&self, tools: &Tools<'_>, shares: &[Share]) -> Result<(Kernel, Box<dyn Vmm>)> {
        let wants_window = shares.iter().any(|share| share.dax.is_some());
        match self.vmm {
            VmmName::Qemu => {
                let program = match wants_window || self.kernel_with_versions {
                    true => tools.qemu_with_window(self.qemu.as_deref())?,
                    false => tools.qemu(self.qemu.as_deref(), self.fetch)?,
                };
                let kernel = match self.kernel_with_versions {
                    true => tools.kernel_with_versions(self.kernel.as_deref())?,
                    false => tools.kernel(self.kernel.as_deref())?,
                };
                let accelerator = match self.accel {
                    Accel::Kvm => Accelerator::Kvm,
                    Accel::Tcg => Accelerator::Tcg,
                    Accel::Auto => Accelerator::best(&program, &kernel, tools.cache()),
                };
                Ok((kernel, Box::new(Qemu::new(program, accelerator, tools.cache()))))
            }
            VmmName::Uml if wants_window => Err(Error::Usage(
                "User Mode Linux has no shared-memory regions and therefore no DAX; use --vmm qemu".into(),
            )),
            VmmName::Uml if self.kernel_with_versions => {
                Ok((tools.uml_kernel_with_versions(self.kernel.as_deref())?, Box::new(Uml)))
            }
            VmmName::Uml => Ok((tools.uml_kernel(self.kernel.as_deref())?, Box::new(Uml))),
        }
    }
}
