"""Three of cacophony's test vectors, so that a checkout without the full set checks something.

Source: https://github.com/haskell-cryptography/cacophony, vectors/cacophony.txt (Unlicense, public domain).
"""

KEYS = {
    "init_prologue": "4a6f686e2047616c74",
    "init_static": "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1",
    "init_ephemeral": "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a",
    "init_remote_static": "31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62",
    "resp_prologue": "4a6f686e2047616c74",
    "resp_static": "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893",
    "resp_ephemeral": "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b",
}

PAYLOADS = (
    "4c756477696720766f6e204d69736573",
    "4d757272617920526f746862617264",
    "462e20412e20486179656b",
    "4361726c204d656e676572",
    "4a65616e2d426170746973746520536179",
)


def vector(name, handshake_hash, *ciphertexts):
    """Spells a vector as the published files do; XX takes no key beforehand."""
    keys = {key: figure for key, figure in KEYS.items() if key != "init_remote_static" or "_XK_" in name}
    messages = [
        {"payload": payload, "ciphertext": "".join(ciphertext.split())}
        for payload, ciphertext in zip(PAYLOADS, ciphertexts, strict=True)
    ]
    return {**keys, "protocol_name": name, "handshake_hash": "".join(handshake_hash.split()), "messages": messages}


INLINE_VECTORS = [
    vector(
        "Noise_XK_25519_ChaChaPoly_SHA256",
        "cefffc5d1074126cc980ebfe902587ff36ba61dc77d4447ebe0f96dc22ae59d7",
        """
        ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944a3785af283c991bab613473804356ef6
        931f83acf64f99c274b93570857cfc5e
        """,
        """
        95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f1448088433a4534805fa9fe4eb8343ace6609160c
        767ad9b832e8eea1d9b7a2111818dd
        """,
        """
        5d8e67b9c1b8e36f5dc674bc5cd2ce243fb5d1710fa57de0370da7cc979015398eaad94603b05498ba9a613d2fd923dc
        aa6fd4288dfd8d70f419bf737efb4cd37f5da37ebb728849318c82
        """,
        "3205e1265f809505e6edc092839d3156745d2abafbfd946b261e41",
        "470bcb1ae099555ff0d729500df550418d6ee5149d9e40bd2f4c6b3d263cc818d5",
    ),
    vector(
        "Noise_XK_25519_ChaChaPoly_BLAKE2b",
        """
        d34784be40e90f33c524e69a3d1dc4155e159d86bf42f01c615d40beb0816b880f0a3e20825fec22de1d607231a315d9
        0d355cd9e5ba7205a17b6e0e9f4b490d
        """,
        """
        ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79442806e28405ac4325fcf83607489496d6
        d326ab3fe084dbb1634f801405a69297
        """,
        """
        95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f1448088430ea4de2eff2cd3b1e7be5f7e792d8739
        5f0863722ab04ec030529d6c5820de
        """,
        """
        ec9136de99472b49eda3ba9fe84882d48f131b27386784b3f45e9f103ad1b6efa2f2e95f0afce5d0d4c8052aed814385
        00be54a8fd8dd4f5ba04f7907b312701d0d687716a30b23c22f568
        """,
        "d6ea0c3364ed480b415d44c3235fdb311dfa8d6e1dc1e6f3a76ee3",
        "59f41ca9ea14a8305bae379bbdd8b4d5cf9bd308d2d7e042e2bf03c48dd910b37b",
    ),
    vector(
        "Noise_XX_25519_ChaChaPoly_SHA256",
        "c8e5f64e846193be2a834104c2a009868d6c9f3bd3c186299888b488b2f1f58e",
        "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79444c756477696720766f6e204d69736573",
        """
        95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f14480884381cbad1f276e038c48378ffce2b65285
        e08d6b68aaa3629a5a8639392490e5b9bd5269c2f1e4f488ed8831161f19b7815528f8982ffe09be9b5c412f8a0db50f
        8814c7194e83f23dbd8d162c9326ad
        """,
        """
        c7195ffacac1307ff99046f219750fc47693e23c3cb08b89c2af808b444850a80ae475b9df0f169ae80a89be0865b57f
        58c9fea0d4ec82a286427402f113e4b6ae769a1d95941d49b25030
        """,
        "96763ed773f8e47bb3712f0e29b3060ffc956ffc146cee53d5e1df",
        "3e40f15f6f3a46ae446b253bf8b1d9ffb6ed9b174d272328ff91a7e2e5c79c07f5",
    ),
]
