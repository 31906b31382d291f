//! Quantized weights on the device: which form does each coding have there, and how is it written?
//!
//! `kernels/common/quantized.cuh` describes the units and headers that are written here. Invariant: the numbers that kernels read from them are those
//! of [`WeightFormat::dequantize_row`], rounded once to the device's number type. A matrix for which that is not certain (no [`Form`], or scales that
//! are not finite) is not held in codes.

use crate::HostMatrix;
use crate::cuda::driver::Address;
use crate::cuda::params::params;
use formats::{
    Block, Codes, E2M1, IQ4, Lattice, Scaled, ScaledRow, Scales, WeightFormat, from_e8m0, q3_scale, scale_and_min,
};
use half::{bf16, f16};

params! {
    QuantizedWeights in "common/quantized.cuh" {
        units: Address,
        header: i32,
        header_bytes: i32,
        units_of_row: i32,
        zero: f32,
        table: [u32; 4],
        is_bf16: i32,
        kind: i32,
        code_bytes: i32,
    }
}

/// Columns of a unit.
pub const COLUMNS: usize = 8;
/// Numbers of k of a unit.
pub const DEPTH: usize = 64;
/// Numbers that share a scale, or two of them.
const HALF: usize = 32;

/// A kind of codes: `CodeKind` in `quantized.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    FourBits = 0,
    TableBits = 1,
    FiveBits = 2,
    SixBits = 3,
    EightBits = 4,
    Float8 = 5,
}

impl Kind {
    pub const ALL: [Kind; 6] =
        [Kind::FourBits, Kind::TableBits, Kind::FiveBits, Kind::SixBits, Kind::EightBits, Kind::Float8];

    /// How kernel names spell it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::FourBits => "four",
            Kind::TableBits => "table",
            Kind::FiveBits => "five",
            Kind::SixBits => "six",
            Kind::EightBits => "eight",
            Kind::Float8 => "float8",
        }
    }

    /// Bytes of the codes of a unit: `BYTES` in `quantized.cuh`.
    pub fn code_bytes(self) -> usize {
        match self {
            Kind::FourBits | Kind::TableBits => 256,
            Kind::FiveBits => 256 + 64,
            Kind::SixBits => 256 + 128,
            Kind::EightBits | Kind::Float8 => 512,
        }
    }
}

/// `HeaderKind` in `quantized.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Header {
    Halves = 0,
    HalvesMin = 1,
    KBlocks = 2,
    Signed = 3,
    Sixteenths = 4,
    Words = 5,
    Floats = 6,
    /// For codes of E2M1 whose scales are powers of two of at most 2.
    Bf16s = 7,
}

/// How a coding is held on the device. Matrices of one form can be stacked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Form {
    pub kind: Kind,
    header: Header,
    header_bytes: usize,
    /// The type of the scales of [`Header::Words`].
    is_bf16: bool,
    zero: f32,
    table: [u8; 16],
}

impl Form {
    /// The form of a matrix of `cols` columns, `None` for plain numbers and for codings that no form has exactly.
    pub fn of(coding: WeightFormat, cols: usize) -> Option<Form> {
        if !cols.is_multiple_of(HALF) {
            return None;
        }
        let form = |kind, header, header_bytes, zero| Form {
            kind,
            header,
            header_bytes,
            is_bf16: false,
            zero,
            table: [0; 16],
        };
        let block = |block| {
            Some(match block {
                // No header has two minima for 32 numbers.
                Block::Q2K => return None,
                // Each 16 numbers have a factor.
                Block::Iq2Xs | Block::Iq2S | Block::Iq1M => return None,
                Block::Iq2Xxs | Block::Iq3Xxs | Block::Iq3S | Block::Iq1S | Block::Tq1_0 | Block::Tq2_0 => {
                    let table = Lattice::table(block)?.map(|integer| (i16::from(integer) + 128) as u8);
                    Form { table, ..form(Kind::TableBits, Header::Floats, 8, 128.0) }
                }
                // Codes are 28 more, which makes their zero that of `Q6K`.
                Block::Q3K => form(Kind::SixBits, Header::Sixteenths, 8, 0.0),
                Block::Q8_0 => form(Kind::EightBits, Header::Halves, 4, 128.0),
                Block::Q4_0 => form(Kind::FourBits, Header::Halves, 4, 8.0),
                Block::Q4_1 => form(Kind::FourBits, Header::HalvesMin, 8, 0.0),
                Block::Q5_0 => form(Kind::FiveBits, Header::Halves, 4, 16.0),
                Block::Q5_1 => form(Kind::FiveBits, Header::HalvesMin, 8, 0.0),
                Block::Q4K => form(Kind::FourBits, Header::KBlocks, 8, 0.0),
                Block::Q5K => form(Kind::FiveBits, Header::KBlocks, 8, 0.0),
                Block::Q6K => form(Kind::SixBits, Header::Sixteenths, 8, 0.0),
                Block::Iq4Nl => Form { table: IQ4_TABLE, ..form(Kind::TableBits, Header::Halves, 4, 128.0) },
                Block::Iq4Xs => Form { table: IQ4_TABLE, ..form(Kind::TableBits, Header::Signed, 4, 128.0) },
                Block::Mxfp4 => Form { table: E2M1_TABLE, ..form(Kind::TableBits, Header::Bf16s, 4, 128.0) },
            })
        };
        match coding {
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => None,
            WeightFormat::Block(of) => block(of),
            WeightFormat::Scaled(scaled) => Form::of_scaled(scaled),
        }
    }

    /// `zero * scale` has to be exact in f32: zeros of eight bits times scales of sixteen, powers of two times any.
    fn of_scaled(Scaled { codes, scales, group, zeros }: Scaled) -> Option<Form> {
        let (kind, zero, table) = match codes {
            Codes::U4 => (Kind::FourBits, 8.0, [0; 16]),
            Codes::U8 | Codes::I8 => (Kind::EightBits, 128.0, [0; 16]),
            Codes::E4m3 => (Kind::Float8, 0.0, [0; 16]),
            Codes::E2m1 => (Kind::TableBits, 128.0, E2M1_TABLE),
        };
        let is_short = matches!(scales, Scales::F16 | Scales::Bf16) && codes != Codes::E2m1;
        if zeros && !(is_short && matches!(codes, Codes::U4 | Codes::U8)) {
            return None;
        }
        let is_shared = group == Scaled::ROW || group.is_multiple_of(DEPTH);
        let (header, header_bytes) = match scales {
            Scales::F16 | Scales::Bf16 if is_short => (Header::Words, if is_shared { 4 } else { 8 }),
            Scales::E8m0 if codes == Codes::E2m1 => (Header::Bf16s, 4),
            _ => (Header::Floats, 8),
        };
        let is_bf16 = header == Header::Words && scales == Scales::Bf16;
        Some(Form { kind, header, header_bytes, is_bf16, zero, table })
    }

    /// The forms that the kernels of `gemv_quantized.cu` and `gemm_quantized.cu` have, and `gemv_shared_quantized.cu` knows.
    pub const NAMES: [&str; 9] = [
        "four_halves",
        "four_k_blocks",
        "four_words",
        "five_k_blocks",
        "six_sixteenths",
        "eight_halves",
        "eight_words",
        "float8_words",
        "float8_floats",
    ];

    /// Which of [`NAMES`](Form::NAMES) it is.
    pub fn index(&self) -> Option<usize> {
        self.scaled_name().and_then(|name| Form::NAMES.iter().position(|known| *known == name))
    }

    /// How these kernels name this form, `None` where there are none.
    pub fn scaled_name(&self) -> Option<&'static str> {
        match (self.kind, self.header, self.header_bytes) {
            (Kind::FourBits, Header::Halves, 4) => Some("four_halves"),
            (Kind::FourBits, Header::KBlocks, 8) => Some("four_k_blocks"),
            (Kind::FourBits, Header::Words, 4) => Some("four_words"),
            (Kind::FiveBits, Header::KBlocks, 8) => Some("five_k_blocks"),
            (Kind::SixBits, Header::Sixteenths, 8) => Some("six_sixteenths"),
            (Kind::EightBits, Header::Halves, 4) => Some("eight_halves"),
            (Kind::EightBits, Header::Words, 4) => Some("eight_words"),
            (Kind::Float8, Header::Words, 4) => Some("float8_words"),
            (Kind::Float8, Header::Floats, 8) => Some("float8_floats"),
            _ => None,
        }
    }

    /// Whether kernels have pairs of codes from words of bytes: `CROSSED` in `quantized_pairs.cuh`.
    pub fn is_crossed(&self) -> bool {
        matches!(self.kind, Kind::EightBits | Kind::Float8)
    }

    /// Bytes of a unit.
    pub fn unit_bytes(&self) -> usize {
        self.kind.code_bytes() + COLUMNS * self.header_bytes
    }

    /// Bytes of eight columns of `cols` numbers.
    pub fn octet_bytes(&self, cols: usize) -> usize {
        cols.div_ceil(DEPTH) * self.unit_bytes()
    }

    /// What kernels are given of a matrix of `cols` columns whose units begin at `units`.
    pub fn weights(&self, units: Address, cols: usize) -> QuantizedWeights {
        let table = self.table.as_chunks::<4>().0;
        QuantizedWeights {
            units,
            header: self.header as i32,
            header_bytes: self.header_bytes as i32,
            units_of_row: cols.div_ceil(DEPTH) as i32,
            zero: self.zero,
            table: [0, 1, 2, 3].map(|word| u32::from_le_bytes(table[word])),
            is_bf16: i32::from(self.is_bf16),
            kind: self.kind as i32,
            code_bytes: self.kind.code_bytes() as i32,
        }
    }

    /// Writes the units of eight rows of `matrix` from `first` on, zeros for rows that it lacks. `octet` has [`Form::octet_bytes`].
    ///
    /// Returns whether all numbers are those that kernels will read.
    pub fn write_octet(&self, matrix: &HostMatrix, first: usize, octet: &mut [u8], writer: &mut Writer) -> bool {
        let (rows, cols) = matrix.shape();
        octet.fill(0);
        let mut is_exact = true;
        for column in 0..COLUMNS.min(rows - first) {
            let row = matrix.row(first + column);
            writer.read(matrix.coding(), row, cols);
            is_exact &= self.write_headers(matrix.coding(), row, &writer.factors, [cols, column], octet);
            is_exact &= self.kind != Kind::Float8 || writer.codes[..cols].iter().all(|code| code & 0x7f != 0x7f);
            self.write_codes(&writer.codes, column, octet);
        }
        is_exact
    }

    fn write_codes(&self, codes: &[u8], column: usize, octet: &mut [u8]) {
        for (unit, codes) in octet.chunks_exact_mut(self.unit_bytes()).zip(codes.as_chunks::<DEPTH>().0) {
            // `half`: the first or second 32 numbers; `lane`: that of the warp's which has the eight.
            let eights =
                codes.as_chunks::<8>().0.iter().enumerate().map(|(i, eight)| (i / 4, column * 4 + i % 4, eight));
            for (half, lane, eight) in eights {
                match self.kind {
                    Kind::FourBits | Kind::FiveBits | Kind::SixBits => {
                        let word = interleaved(*eight);
                        unit[lane * 8 + half * 4..][..4].copy_from_slice(&word.to_le_bytes());
                    }
                    Kind::TableBits if self.header == Header::Bf16s => {
                        unit[lane * 8 + half * 4..][..4].copy_from_slice(&interleaved(*eight).to_le_bytes());
                    }
                    Kind::TableBits => {
                        let word = (0..8).fold(0u32, |word, i| word | u32::from(eight[i] & 15) << (4 * i));
                        unit[lane * 8 + half * 4..][..4].copy_from_slice(&word.to_le_bytes());
                    }
                    Kind::EightBits | Kind::Float8 => unit[lane * 16 + half * 8..][..8].copy_from_slice(eight),
                }
                // Of pair p of the lane's eight: its first number's bits, and its second number's half a word above.
                for (pair, codes) in eight.as_chunks::<2>().0.iter().enumerate() {
                    let [first, second] = codes.map(|code| code >> 4);
                    let pair = half * 4 + pair;
                    match self.kind {
                        Kind::FiveBits => {
                            unit[256 + lane * 2] |= first << pair;
                            unit[256 + lane * 2 + 1] |= second << pair;
                        }
                        Kind::SixBits => {
                            unit[256 + lane * 4 + pair / 4] |= first << (pair % 4 * 2);
                            unit[256 + lane * 4 + 2 + pair / 4] |= second << (pair % 4 * 2);
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    fn write_headers(
        &self,
        coding: WeightFormat,
        row: ScaledRow,
        factors: &[f32],
        [cols, column]: [usize; 2],
        octet: &mut [u8],
    ) -> bool {
        let mut is_finite = true;
        for (index, unit) in octet.chunks_exact_mut(self.unit_bytes()).enumerate() {
            let header = &mut unit[self.kind.code_bytes() + column * self.header_bytes..][..self.header_bytes];
            let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
            let is_number = |bytes: &[u8]| f16::from_le_bytes([bytes[0], bytes[1]]).is_finite();
            for in_unit in 0..2 {
                let group = index * 2 + in_unit;
                if group * HALF >= cols {
                    break;
                }
                match coding {
                    WeightFormat::Block(block) => {
                        let at = group * HALF / block.numbers() * block.bytes();
                        let bytes = &row.codes[at..at + block.bytes()];
                        let j = group % 8;
                        match block {
                            Block::Q8_0 | Block::Q4_0 | Block::Q5_0 | Block::Iq4Nl => {
                                is_finite &= is_number(bytes);
                                put(in_unit * 2, &bytes[..2]);
                            }
                            Block::Q4_1 | Block::Q5_1 => {
                                is_finite &= is_number(bytes) && is_number(&bytes[2..]);
                                put(in_unit * 4, &bytes[..4]);
                            }
                            Block::Q4K | Block::Q5K => {
                                is_finite &= is_number(bytes) && is_number(&bytes[2..]);
                                put(0, &bytes[..4]);
                                let (scale, min) = scale_and_min(&bytes[4..16], j);
                                put(4 + in_unit * 2, &[scale, min]);
                            }
                            Block::Q6K => {
                                is_finite &= is_number(&bytes[208..]);
                                put(0, &bytes[208..210]);
                                put(4 + in_unit * 2, &bytes[192 + 2 * j..][..2]);
                            }
                            Block::Iq4Xs => {
                                is_finite &= is_number(bytes);
                                put(0, &bytes[..2]);
                                let high = u16::from_le_bytes([bytes[2], bytes[3]]) >> (2 * j) & 3;
                                let low = bytes[4 + j / 2] >> (j % 2 * 4) & 15;
                                put(2 + in_unit, &[(low | (high as u8) << 4).wrapping_sub(32)]);
                            }
                            Block::Q3K => {
                                is_finite &= is_number(&bytes[108..]);
                                put(0, &bytes[108..110]);
                                let scale = |k| q3_scale(&bytes[96..108], k).wrapping_sub(32);
                                put(4 + in_unit * 2, &[scale(2 * j), scale(2 * j + 1)]);
                            }
                            Block::Q2K => unreachable!("it has no form"),
                            Block::Iq2Xs | Block::Iq2S | Block::Iq1M => unreachable!("they have no form"),
                            Block::Iq2Xxs | Block::Iq3Xxs | Block::Iq3S | Block::Iq1S | Block::Tq1_0 | Block::Tq2_0 => {
                                let factor = factors[group];
                                is_finite &= factor.abs() < GREATEST_SCALE;
                                put(in_unit * 4, &factor.to_le_bytes());
                            }
                            Block::Mxfp4 => {
                                let scale = from_e8m0(bytes[0]) / 2.0;
                                is_finite &= scale <= GREATEST_BF16;
                                put(in_unit * 2, &bf16_bytes(scale));
                            }
                        }
                    }
                    WeightFormat::Scaled(scaled) => {
                        let group = group * HALF / scaled.group;
                        let scale = scaled.scales.read(row.scales, group);
                        is_finite &= scale.abs() < GREATEST_SCALE;
                        let of_codes = if scaled.codes == Codes::E2m1 { scale / 2.0 } else { scale };
                        if self.header == Header::Bf16s {
                            is_finite &= of_codes <= GREATEST_BF16;
                            put(in_unit * 2, &bf16_bytes(of_codes));
                        } else if self.header == Header::Floats {
                            put(in_unit * 4, &of_codes.to_le_bytes());
                        } else if in_unit * 4 < self.header_bytes {
                            put(in_unit * 4, &row.scales[group * 2..][..2]);
                            let zero = if scaled.zeros { row.zeros[group] } else { self.zero as u8 };
                            put(in_unit * 4 + 2, &[zero]);
                        }
                    }
                    WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => {
                        unreachable!("plain numbers have no form")
                    }
                }
            }
        }
        is_finite
    }
}

/// The nibbles of a word: the even numbers, then the odd ones.
fn interleaved(eight: [u8; 8]) -> u32 {
    let nibble = |i: usize| u32::from(eight[i] & 15);
    let four = |first: usize| (0..4).fold(0, |word, i| word | nibble(first + 2 * i) << (4 * i));
    four(0) | four(1) << 16
}

/// Scales in f32 are below it: kernels multiply by 2^24.
const GREATEST_SCALE: f32 = f32::from_bits((127 + 96) << 23);

/// A scale of [`Header::Bf16s`] at most: kernels multiply by 2^127, in bf16.
const GREATEST_BF16: f32 = 1.0;

/// A power of two, which bf16 has as f32 does.
fn bf16_bytes(scale: f32) -> [u8; 2] {
    bf16::from_f32(scale).to_le_bytes()
}

/// What [`IQ4`] has, and 128 more.
const IQ4_TABLE: [u8; 16] = {
    let mut table = [0; 16];
    let mut code = 0;
    while code < 16 {
        table[code] = (IQ4[code] as i16 + 128) as u8;
        code += 1;
    }
    table
};

/// Twice what [`E2M1`] has, and 128 more.
const E2M1_TABLE: [u8; 16] = {
    let mut table = [0; 16];
    let mut code = 0;
    while code < 16 {
        table[code] = (2.0 * E2M1[code] + 128.0) as u8;
        code += 1;
    }
    table
};

/// Scratch of whoever writes octets.
pub struct Writer {
    /// The codes of a row, a byte for each number; zeros up to whole units.
    codes: Vec<u8>,
    /// The factors of a row of [`Lattice`]s, one for each 32 numbers.
    factors: Vec<f32>,
}

impl Writer {
    pub fn new(cols: usize) -> Writer {
        Writer { codes: vec![0; cols.next_multiple_of(DEPTH)], factors: vec![0.0; cols / HALF] }
    }

    /// Reads the codes of a row: signed ones with 128 more, so that none is negative.
    fn read(&mut self, coding: WeightFormat, row: ScaledRow, cols: usize) {
        let codes = &mut self.codes[..cols];
        match coding {
            WeightFormat::Block(block) => {
                let blocks = row.codes.chunks_exact(block.bytes());
                if let Some(table) = Lattice::table(block) {
                    let code_of = |integer: i8| table.iter().position(|&one| one == integer).unwrap_or(0) as u8;
                    let factors = self.factors.chunks_exact_mut(block.numbers() / HALF);
                    for ((bytes, codes), factors) in blocks.zip(codes.chunks_exact_mut(block.numbers())).zip(factors) {
                        let lattice = Lattice::of(block, bytes).expect("a kind with a table");
                        codes.iter_mut().zip(&lattice.integers).for_each(|(code, &integer)| *code = code_of(integer));
                        factors.iter_mut().zip(lattice.factors.chunks(2)).for_each(|(to, of)| *to = of[0]);
                    }
                    return;
                }
                for (bytes, codes) in blocks.zip(codes.chunks_exact_mut(block.numbers())) {
                    read_block(block, bytes, codes);
                }
            }
            WeightFormat::Scaled(scaled) => match scaled.codes {
                Codes::U4 | Codes::E2m1 => {
                    for (pair, byte) in codes.as_chunks_mut::<2>().0.iter_mut().zip(row.codes) {
                        *pair = [byte & 15, byte >> 4];
                    }
                }
                Codes::U8 | Codes::E4m3 => codes.copy_from_slice(row.codes),
                Codes::I8 => codes.iter_mut().zip(row.codes).for_each(|(code, byte)| *code = byte ^ 0x80),
            },
            WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => unreachable!("plain numbers have no form"),
        }
    }
}

fn read_block(block: Block, bytes: &[u8], codes: &mut [u8]) {
    // Sixteen bytes: the low bits are the first 16 numbers, the high bits the others.
    let nibbles = |bytes: &[u8], codes: &mut [u8]| {
        let (low, high) = codes.split_at_mut(16);
        for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
            (*low, *high) = (byte & 15, byte >> 4);
        }
    };
    let fifth_bits = |bytes: &[u8], codes: &mut [u8]| {
        let bits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        codes.iter_mut().enumerate().for_each(|(i, code)| *code |= ((bits >> i & 1) as u8) << 4);
    };
    // Of each 32 bytes the low bits are 32 numbers and the high bits the next 32.
    let k_nibbles = |bytes: &[u8], codes: &mut [u8]| {
        for (bytes, codes) in bytes.chunks_exact(32).zip(codes.chunks_exact_mut(64)) {
            let (low, high) = codes.split_at_mut(32);
            for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
                (*low, *high) = (byte & 15, byte >> 4);
            }
        }
    };
    match block {
        Block::Q8_0 => codes.iter_mut().zip(&bytes[2..]).for_each(|(code, byte)| *code = byte ^ 0x80),
        Block::Q4_0 | Block::Iq4Nl => nibbles(&bytes[2..], codes),
        Block::Q3K => {
            for (n, code) in codes.iter_mut().enumerate() {
                let (part, quarter, i) = (n / 128, n % 128 / 32, n % 32);
                let two = bytes[32 + part * 32 + i] >> (quarter * 2) & 3;
                *code = (two | (bytes[i] >> (n / 32) & 1) << 2) + 28;
            }
        }
        Block::Q2K => unreachable!("it has no form"),
        Block::Iq2Xs | Block::Iq2S | Block::Iq1M => unreachable!("they have no form"),
        // The writer reads them with their factors.
        Block::Iq2Xxs | Block::Iq3Xxs | Block::Iq3S | Block::Iq1S | Block::Tq1_0 | Block::Tq2_0 => {
            unreachable!("lattices have factors")
        }
        Block::Mxfp4 => nibbles(&bytes[1..], codes),
        Block::Q4_1 => nibbles(&bytes[4..], codes),
        Block::Q5_0 => {
            nibbles(&bytes[6..], codes);
            fifth_bits(&bytes[2..], codes);
        }
        Block::Q5_1 => {
            nibbles(&bytes[8..], codes);
            fifth_bits(&bytes[4..], codes);
        }
        Block::Q4K => k_nibbles(&bytes[16..], codes),
        Block::Q5K => {
            k_nibbles(&bytes[48..], codes);
            for (j, codes) in codes.chunks_exact_mut(32).enumerate() {
                codes.iter_mut().zip(&bytes[16..48]).for_each(|(code, byte)| *code |= (byte >> j & 1) << 4);
            }
        }
        Block::Q6K => {
            for (n, code) in codes.iter_mut().enumerate() {
                let (part, quarter, i) = (n / 128, n % 128 / 32, n % 32);
                let four = bytes[part * 64 + quarter % 2 * 32 + i] >> (quarter / 2 * 4) & 15;
                let two = bytes[128 + part * 32 + i] >> (quarter * 2) & 3;
                *code = four | two << 4;
            }
        }
        Block::Iq4Xs => bytes[8..].chunks_exact(16).zip(codes.chunks_exact_mut(32)).for_each(|(b, c)| nibbles(b, c)),
    }
}
