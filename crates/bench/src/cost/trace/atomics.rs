//! Which memory an instruction changes atomically: with a LOCK prefix, or as XCHG does without one.
//!
//! Two threads that take one lock, or count one reference, change the same word so. Source: Intel's manual, volume 2,
//! chapter 2.

use nix::libc::user_regs_struct;

/// Where an instruction finds the word that it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    /// Numbers of registers.
    base: Option<u8>,
    index: Option<(u8, u8)>,
    displacement: i64,
    /// Bytes of the instruction, if the address is relative to its end.
    relative_to_end: Option<u8>,
}

/// The longest instruction, in bytes.
pub(super) const INSTRUCTION_LEN_MAX: usize = 15;

impl Operand {
    /// Returns the operand of the instruction at the beginning of `bytes`, if it changes memory atomically. Memory of
    /// the thread itself (FS) is left out.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Bytes { bytes, at: 0 };
        let (mut is_locked, mut has_small_operand) = (false, false);
        let mut byte = bytes.next()?;
        loop {
            match byte {
                0xf0 => is_locked = true,
                0x66 => has_small_operand = true,
                0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 => {}
                0x64 | 0x65 | 0x67 => return None,
                _ => break,
            }
            byte = bytes.next()?;
        }
        let rex = if byte & 0xf0 == 0x40 { std::mem::replace(&mut byte, bytes.next()?) } else { 0 };
        let is_long = byte == 0x0f;
        let opcode = if is_long { bytes.next()? } else { byte };
        let is_exchange = !is_long && matches!(opcode, 0x86 | 0x87);
        if !is_locked && !is_exchange {
            return None;
        }
        let immediate_len = match (is_long, opcode) {
            (false, 0x80 | 0x83) | (true, 0xba) => 1,
            (false, 0x81) if has_small_operand => 2,
            (false, 0x81) => 4,
            _ => 0,
        };
        Self::modrm(&mut bytes, rex, immediate_len)
    }

    fn modrm(bytes: &mut Bytes<'_>, rex: u8, immediate_len: u8) -> Option<Self> {
        let modrm = bytes.next()?;
        let (mode, register) = (modrm >> 6, modrm & 7);
        let extended = |register: u8, bit: u8| register | (rex >> bit & 1) << 3;
        let (mut base, mut index) = (Some(extended(register, 0)), None);
        if mode == 3 {
            return None;
        }
        let mut has_long_displacement = mode == 2;
        if register == 4 {
            let sib = bytes.next()?;
            base = Some(extended(sib & 7, 0));
            index = Some((extended(sib >> 3 & 7, 1), sib >> 6)).filter(|(register, _)| *register != 4);
            if mode == 0 && sib & 7 == 5 {
                (base, has_long_displacement) = (None, true);
            }
        }
        let is_relative = mode == 0 && register == 5;
        let displacement = if has_long_displacement || is_relative {
            i64::from(i32::from_le_bytes([bytes.next()?, bytes.next()?, bytes.next()?, bytes.next()?]))
        } else if mode == 1 {
            i64::from(bytes.next()?.cast_signed())
        } else {
            0
        };
        let relative_to_end = is_relative.then_some(bytes.at as u8 + immediate_len);
        Some(Self { base: base.filter(|_| !is_relative), index, displacement, relative_to_end })
    }

    /// Returns the address, before the instruction is executed.
    pub(super) fn address(&self, regs: &user_regs_struct) -> u64 {
        let base = self.base.map_or(0, |base| register(regs, base));
        let index = self.index.map_or(0, |(index, shift)| register(regs, index) << shift);
        let end = self.relative_to_end.map_or(0, |len| regs.rip + u64::from(len));
        base.wrapping_add(index).wrapping_add(end).wrapping_add_signed(self.displacement)
    }
}

/// What is left of an instruction.
struct Bytes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        byte
    }
}

fn register(regs: &user_regs_struct, number: u8) -> u64 {
    let all = [
        regs.rax, regs.rcx, regs.rdx, regs.rbx, regs.rsp, regs.rbp, regs.rsi, regs.rdi, regs.r8, regs.r9, regs.r10,
        regs.r11, regs.r12, regs.r13, regs.r14, regs.r15,
    ];
    all[usize::from(number & 15)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns registers whose values are their numbers times 0x1000, at the address 0x100_0000.
    fn regs() -> user_regs_struct {
        user_regs_struct {
            rax: 0,
            rcx: 0x1000,
            rdx: 0x2000,
            rbx: 0x3000,
            rsp: 0x4000,
            rbp: 0x5000,
            rsi: 0x6000,
            rdi: 0x7000,
            r8: 0x8000,
            r9: 0x9000,
            r10: 0xa000,
            r11: 0xb000,
            r12: 0xc000,
            r13: 0xd000,
            r14: 0xe000,
            r15: 0xf000,
            rip: 0x100_0000,
            orig_rax: 0,
            cs: 0,
            eflags: 0,
            ss: 0,
            fs_base: 0,
            gs_base: 0,
            ds: 0,
            es: 0,
            fs: 0,
            gs: 0,
        }
    }

    #[test]
    fn addresses_are_those_that_an_assembler_meant() {
        let address = |bytes: &[u8]| Operand::of(bytes).map(|operand| operand.address(&regs()));
        // lock cmpxchg %ecx,(%rdi)
        assert_eq!(address(&[0xf0, 0x0f, 0xb1, 0x0f]), Some(0x7000));
        // lock cmpxchg %ecx,0x10(%r14)
        assert_eq!(address(&[0xf0, 0x41, 0x0f, 0xb1, 0x4e, 0x10]), Some(0xe010));
        // lock incq 0x8(%rbx,%rax,8)
        assert_eq!(address(&[0xf0, 0x48, 0xff, 0x44, 0xc3, 0x08]), Some(0x3008));
        // lock xadd %rax,(%rdx,%r9,4)
        assert_eq!(address(&[0xf0, 0x4a, 0x0f, 0xc1, 0x04, 0x8a]), Some(0x2000 + 4 * 0x9000));
        // lock orl $0x0,(%rsp)
        assert_eq!(address(&[0xf0, 0x83, 0x0c, 0x24, 0x00]), Some(0x4000));
        // xchg %eax,-0x8(%r12)
        assert_eq!(address(&[0x41, 0x87, 0x44, 0x24, 0xf8]), Some(0xbff8));
        // lock decq 0x1000(%rip)
        assert_eq!(address(&[0xf0, 0x48, 0xff, 0x0d, 0x00, 0x10, 0x00, 0x00]), Some(0x100_0000 + 8 + 0x1000));
        // lock addl $0x1,0x10(%rip)
        assert_eq!(address(&[0xf0, 0x83, 0x05, 0x10, 0x00, 0x00, 0x00, 0x01]), Some(0x100_0000 + 8 + 0x10));
        // mov (%rdi),%eax; xchg %ax,%ax
        assert_eq!((address(&[0x8b, 0x07]), address(&[0x66, 0x90])), (None, None));
        // lock incl %fs:(%rdi)
        assert_eq!(address(&[0x64, 0xf0, 0xff, 0x07]), None);
    }
}
