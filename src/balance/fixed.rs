//! Logarithm and exponential in fixed point. Those of floating point differ between platforms,
//! and instances that pick by hash have to agree to the last bit. `Qn` is a number with `n` bits
//! behind the point.
//!
//! Both split their argument by a table, which the compiler computes, and a remainder that is
//! small enough for a few terms of a power series.

/// Bits behind the point of [`neg_log2`].
const LOG_BITS: u32 = 57;

const ONE: i64 = 1 << 62;
/// 1 / ln 2, Q62.
const LOG2_E: i64 = 0x5c55_1d94_ae0b_f85d;
/// ln 2, Q62.
const LN_2: i64 = 0x2c5c_85fd_f473_de6a;

/// −log2(n / 2^64), Q57: how unlikely it is that a uniform 64-bit number is above `n`, on a scale
/// where it is exponentially distributed. 0 counts as 1. Off by less than 2^-56.
pub(super) fn neg_log2(n: u64) -> u64 {
    let n = n.max(1);
    let zeros = n.leading_zeros();
    let log = log2(n << zeros).clamp(0, ONE);
    (u64::from(zeros + 1) << LOG_BITS) - (log.unsigned_abs() >> (62 - LOG_BITS))
}

/// e^−x for `x` in Q32, in Q32. Off by less than 2^-30.
pub(super) fn exp_neg(x: u64) -> u64 {
    let halvings = (u128::from(x) * LOG2_E.unsigned_abs() as u128) >> 62;
    if halvings >= 33 << 32 {
        return 0;
    }
    let fraction = halvings as u32;
    // Up to 1/64, times ln 2.
    let rest = mul(i64::from(fraction & ((1 << 26) - 1)) << 30, LN_2);
    let series = ONE - rest + mul(rest, rest) / 2 - mul(mul(rest, rest), rest) / 6;
    let value = mul(series, EXP_TABLE[(fraction >> 26) as usize]);
    value.unsigned_abs() >> 30 >> (halvings >> 32) as u32
}

/// log2 of a mantissa in [1, 2), Q63, as Q62. With `c`, the entry's approximation of 1 / mantissa:
/// log2(m) = −log2(c) + log2(1 + r), r = m·c − 1, |r| < 2^-7.
fn log2(mantissa: u64) -> i64 {
    let (reciprocal, log) = LOG_TABLE[(mantissa >> 56) as usize & 127];
    let product = i128::from(mantissa) * i128::from(reciprocal);
    let r = ((product - (1 << 78)) >> 16) as i64;
    // ln(1 + r) = r − r²/2 + r³/3 − …, to r⁸: what is left out is below 2^-66.
    let mut series = 0;
    for n in (1..=8).rev() {
        series = ONE / n - mul(r, series);
    }
    log + mul(mul(r, series), LOG2_E)
}

const fn mul(a: i64, b: i64) -> i64 {
    ((a as i128 * b as i128) >> 62) as i64
}

/// For each 128th of [1, 2): the reciprocal of its middle in Q15, and −log2 of that in Q62.
const LOG_TABLE: [(u16, i64); 128] = {
    let mut table = [(0, 0); 128];
    let mut i = 0;
    while i < 128 {
        let reciprocal = (1u64 << 23) / (256 + 2 * i as u64 + 1);
        table[i] = (reciprocal as u16, ONE - log2_by_squaring(reciprocal << 49));
        i += 1;
    }
    table
};

/// 2^(−i/64), Q62.
const EXP_TABLE: [i64; 64] = {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        // e^−z = 1 − z/1·(1 − z/2·(1 − z/3·…)); z < 0.7, and 0.7^21 / 21! is nothing.
        let z = mul(LN_2, (i as i64) << 56);
        let mut n = 20;
        let mut series = ONE;
        while n > 0 {
            series = ONE - mul(z, series) / n;
            n -= 1;
        }
        table[i] = series;
        i += 1;
    }
    table
};

/// log2 of a mantissa in [1, 2), Q63, as Q62, digit by digit: squaring doubles the logarithm, and
/// whether that is beyond 2 is the next digit (Knuth, The Art of Computer Programming, volume 1,
/// section 1.2.2). For the table, and to hold the fast one against.
const fn log2_by_squaring(mut mantissa: u64) -> i64 {
    let mut log = 0;
    let mut digit = ONE >> 1;
    while digit > 0 {
        let square = (mantissa as u128 * mantissa as u128) >> 63;
        if square >> 64 > 0 {
            log |= digit;
            mantissa = (square >> 1) as u64;
        } else {
            mantissa = square as u64;
        }
        digit >>= 1;
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: python's decimal module with 60 digits.
    #[test]
    fn known_logarithms() {
        for (n, expected) in [
            (0, 1 << 63),
            (1, 1 << 63),
            (2, 9_079_256_848_778_919_936),
            (3, 8_994_954_867_970_167_537),
            (0x2b_dc54_5d6b_4b87, 1_519_715_455_219_524_634),
            (0x8000_0000_0000_0000, 1 << 57),
            (0xdead_beef_cafe_f00d, 28_993_133_688_280_741),
            (0xffff_ff00_0000_0000, 12_392_656_407),
            (u64::MAX, 0),
        ] {
            let off = neg_log2(n).abs_diff(expected);
            assert!(off <= 2, "{n:#x}: {off}");
        }
    }

    #[test]
    fn known_exponentials() {
        for (x, expected) in [
            (0, 1 << 32),
            (429_496, 4_294_537_821),
            (429_496_729, 3_886_247_119),
            (1 << 31, 2_605_029_347),
            (1 << 32, 1_580_030_169),
            (9_889_527_271, 429_496_770),
            (10 << 32, 194_991),
            (21 << 32, 3),
            (40 << 32, 0),
            (u64::MAX, 0),
        ] {
            let off = exp_neg(x).abs_diff(expected);
            assert!(off <= 4, "{x}: {} for {expected}", exp_neg(x));
        }
    }

    #[test]
    fn fast_logarithm_is_the_slow_one() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..100_000 {
            let mantissa = rng.u64(..) | 1 << 63;
            let off = (log2(mantissa) - log2_by_squaring(mantissa)).unsigned_abs();
            assert!(off < 1 << 5, "{mantissa:#x}: {off}");
        }
    }
}
