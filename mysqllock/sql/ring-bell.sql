-- Lets go of a bell: whoever has waited for it for the longest time wakes up.
DO RELEASE_LOCK({bell})
