"""The data sets as conversations and cases. None of them is part of the project; each is read from the user's
file.
"""
