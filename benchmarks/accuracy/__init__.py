"""Are the answers right, and are the stated errors true?"""
