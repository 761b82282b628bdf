"""The test vector of cacophony for Noise_XK_25519_AESGCM_SHA256.

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
    "457567656e2042f6686d20766f6e2042617765726b",
)

CIPHERTEXTS = (
    (
        "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944e11634ba393ac9f93896f767741fe7"
        "297c64b52a95b20bc07a8c5983eb100a5e"
    ),
    (
        "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843aabea6c8883a5a6de7804420322c70"
        "994289ffe724df10411be50430b113da"
    ),
    (
        "99e0eed98437100ab575e5aa157f20ae23f024a43c58628646991c47e81e64af9c46165872069c5794e99a6d116142"
        "986f3b803df2a6c12f39702f669d5d7818511d6b41218f19cea974ea"
    ),
    "c0502067840ee81f03a76badcc8c4264847069452a9f7531d74f68",
    "e2ce8208bd0c04c6ad779ae52b429d8cb6128a245297857e2c593576c75098b071",
    "5b75e02c3584b6b202de94cc05d6063970c9da7e67283c258820381207706cd767b5b1152d",
)

VECTOR = {
    **KEYS,
    "messages": [{"payload": payload, "ciphertext": sent} for payload, sent in zip(PAYLOADS, CIPHERTEXTS, strict=True)],
}
